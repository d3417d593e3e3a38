#pragma once

#include "cli/run_options.h"
#include "study/load_studies.h"

namespace ssmbench {

/// `run` on configs that hold studies: measures, prints a table, writes results. Returns the exit code:
/// a consistency study that fails counts as a case out of tolerance. Throws UsageError for options that only
/// sweeps have.
int run_studies(const RunOptions& options, const Studies& studies);

}  // namespace ssmbench
