#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "sweep/plan.h"
#include "sweep/run_listener.h"

namespace ssmbench {

/// What is handed to one worker at a time: jobs of cases that share a reference.
struct Unit {
  std::vector<std::size_t> jobs;
  double size = 0;             ///< elements of tensors times implementations: what it takes, roughly
  std::size_t host_bytes = 0;  ///< that the largest of its cases takes
};

/// Of all tensors.
double elements_of(const Problem& problem);

/// These jobs of a plan by units, for so many slots, the largest first: what is started last is short then. A
/// unit that is over half of a slot's share is one for each of its cases: then each has the reference
/// computed, which is less than what slots would wait for. So are all where nothing is verified.
/// `most_of_reference`: as memory_need has it.
std::vector<Unit> units_of(const Plan& plan, const JobSet& jobs, bool verify, std::size_t slots,
                           std::size_t most_of_reference = std::numeric_limits<std::size_t>::max());

}  // namespace ssmbench
