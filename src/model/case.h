#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/input_spec.h"
#include "model/problem.h"
#include "model/user_tolerance.h"

namespace ssmbench {

/// Where in which file a case was asked for, for messages.
struct Source {
  std::string file;
  std::string pointer;  ///< JSON pointer of the sweep
};

/// One point of a sweep: what every implementation is then run on.
struct Case {
  Problem problem;
  InputSpec inputs;
  std::optional<double> budget_ms;  ///< latency that the user wants met
  Source source;
  UserTolerances tolerances = {};  ///< of outputs that the derived ones do not apply to
  bool timed = true;               ///< false: only verified
  /// Globs on names of implementations: those to run. Empty: all but those that run only when named.
  std::vector<std::string> impl = {};

  /// What the user allows of an output; null where the derived tolerance applies.
  const UserTolerance* tolerance_of(const std::string& output) const {
    const auto found = tolerances.find(output);
    return found == tolerances.end() ? nullptr : &found->second;
  }

  /// problem id + distribution + value precision + seed. Stable across machines.
  std::string id() const;
};

/// Bytes that running a case needs at its peak.
struct MemoryNeed {
  std::size_t host = 0;
  std::size_t device = 0;  ///< 0 where no device but the CPU is used
};

}  // namespace ssmbench
