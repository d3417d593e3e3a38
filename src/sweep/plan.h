#pragma once

#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/device.h"
#include "model/case.h"
#include "model/implementation.h"
#include "record/cause.h"

namespace ssmbench {

/// What the user asked for; empty patterns match everything. Globs as in fnmatch(3).
struct Selection {
  std::string impl;     ///< globs on implementation names, with commas between them
  std::string case_id;  ///< glob on case ids
  std::string op, dtype, method;
};

/// One implementation to run on one case and device, or why it is not run.
struct Job {
  const Implementation* implementation = nullptr;
  std::size_t device = 0;  ///< index into Plan::devices
  std::optional<Explanation> skip = {};
};

struct PlannedCase {
  Case the_case;
  std::vector<Job> jobs;

  bool runs_anything() const;
};

/// Cases grouped so that those that share a reference follow each other; in file order otherwise.
struct Plan {
  std::vector<DeviceInfo> devices;
  std::vector<PlannedCase> cases;

  std::size_t job_count() const;
  /// A job by its place among all of them, and the case that it is of.
  std::pair<const PlannedCase*, const Job*> job(std::size_t number) const;
};

/// "cpu", "cuda:0", "cpu*2" for a team of two ranks.
std::string device_id(const DeviceInfo& device);

Plan make_plan(std::vector<Case> cases, std::vector<DeviceInfo> devices, const Selection& selection);

/// Cases with equal keys have equal reference outputs: axes that change no values do not matter, nor does
/// dtype where the values are shared between dtypes, as long as no bound depends on it.
std::string reference_key(const Case& the_case);

/// Bytes that the ranks of a job's team take where rank 0 has the whole problem: all of them, or the one that needs
/// most where each has a device of its own; 0 where there is no team.
std::size_t bytes_of_ranks(const Job& job, const Plan& plan, const Problem& problem);

/// Bytes that a planned case needs at its peak: inputs, outputs, reference, the largest workspace or
/// team. A reference that takes more than `most_of_reference` is computed in parts.
MemoryNeed memory_need(const PlannedCase& planned, const Plan& plan, bool verify,
                       std::size_t most_of_reference = std::numeric_limits<std::size_t>::max());

}  // namespace ssmbench
