#pragma once

#include <filesystem>
#include <vector>

#include "study/convergence.h"

namespace ssmbench {

/// The studies of config files; none when they hold sweeps. Throws UsageError, one line `FILE: JSON POINTER:
/// what is wrong; expected …`, also when studies and sweeps come together: `run` does one or the other.
std::vector<ConvergenceStudy> load_studies(const std::vector<std::filesystem::path>& files);

}  // namespace ssmbench
