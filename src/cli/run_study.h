#pragma once

#include <vector>

#include "cli/run_options.h"
#include "study/convergence.h"

namespace ssmbench {

/// `run` on configs that hold studies: measures, prints a table, writes results. Returns the exit code.
/// Throws UsageError for options that only sweeps have.
int run_studies(const RunOptions& options, const std::vector<ConvergenceStudy>& studies);

}  // namespace ssmbench
