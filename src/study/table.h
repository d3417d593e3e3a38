#pragma once

#include <string>
#include <vector>

#include "study/convergence.h"

namespace ssmbench {

/// A table for people of methods that ran with the same A, horizon and steps. Not empty.
std::string convergence_table(const std::vector<MethodConvergence>& methods);

}  // namespace ssmbench
