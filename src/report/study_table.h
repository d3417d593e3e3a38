#pragma once

#include <string>
#include <vector>

#include "record/study_result.h"

namespace ssmbench {

/// A table for people of methods that ran with the same A, horizon and steps. Not empty.
std::string convergence_table(const std::vector<MethodConvergence>& methods);

/// A line for people, without an end of line, and what stands above such lines.
std::string consistency_heading();
std::string consistency_line(const ConsistencyResult& result);

}  // namespace ssmbench
