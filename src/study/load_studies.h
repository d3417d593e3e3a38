#pragma once

#include <filesystem>
#include <vector>

#include "study/consistency.h"
#include "study/convergence.h"

namespace ssmbench {

struct Studies {
  std::vector<ConvergenceStudy> convergence;
  std::vector<ConsistencyStudy> consistency;

  std::size_t size() const { return convergence.size() + consistency.size(); }
  bool empty() const { return size() == 0; }
};

/// The studies of config files; none when they hold sweeps. Throws UsageError, one line `FILE: JSON POINTER:
/// what is wrong; expected …`, also when studies and sweeps come together: `run` does one or the other.
Studies load_studies(const std::vector<std::filesystem::path>& files);

}  // namespace ssmbench
