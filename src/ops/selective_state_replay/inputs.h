#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "inputs/distributions.h"
#include "model/case.h"
#include "ops/selective_state_replay/selective_state_replay.h"
#include "ops/selective_state_update/inputs.h"

namespace ssmbench {

/// The exact values, before rounding to a dtype, of the inputs of selective_state_replay: new tokens and
/// states as those of selective_state_update, tokens in rings like new ones, those that have not been written
/// yet too. Rings start anywhere.
class StateReplayInputs {
 public:
  /// Throws UsageError for an unknown distribution.
  StateReplayInputs(const Problem& problem, const InputSpec& spec);

  /// Elements first, first + 1, … (row-major) of the named tensor, which differ in the last index only.
  void fill(std::string_view tensor, std::int64_t first, std::span<double> values) const;

 private:
  void fill_ring_dt(std::int64_t first, std::span<double> values) const;
  void fill_start(std::int64_t first, std::span<double> values) const;

  StateReplay replay_;
  std::int64_t seed_;
  const DistributionInfo* distribution_;
  StateUpdateInputs steps_;
  std::vector<double> counts_;         // by slot
  std::vector<double> inverse_of_dt_;  // softplus⁻¹(dt), by head
};

}  // namespace ssmbench
