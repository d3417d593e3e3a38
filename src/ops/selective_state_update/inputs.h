#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "inputs/distributions.h"
#include "model/case.h"
#include "model/problem.h"
#include "ops/selective_state_update/selective_state_update.h"

namespace ssmbench {

/// The exact values, before rounding to a dtype, of the inputs of selective_state_update: state, x, z, B, C ~
/// N(0, 1), D, Δ and, in form mamba1, A as for the selective scan (inputs/distributions.h), with dt for each
/// head. In form mamba2, where the distribution draws no rates, −A is uniform in [1, 16], as Mamba-2
/// initialises it (mamba_ssm's mamba2.py, A_init_range). Slots are handed out in a random order. Where states
/// have scales these are those of rows whose largest state is between 1 and 4.
class StateUpdateInputs {
 public:
  /// Throws UsageError for an unknown distribution.
  StateUpdateInputs(const Problem& problem, const InputSpec& spec);

  /// Elements first, first + 1, … (row-major) of the named tensor, which differ in the last index only.
  void fill(std::string_view tensor, std::int64_t first, std::span<double> values) const;

 private:
  void fill_rate(std::int64_t first, std::span<double> values) const;
  void fill_dt(std::int64_t first, std::span<double> values) const;
  void fill_dt_bias(std::int64_t first, std::span<double> values) const;
  void fill_source(std::int64_t first, std::span<double> values) const;
  void fill_state(std::int64_t first, std::span<double> values) const;
  void fill_scale(std::int64_t first, std::span<double> values) const;
  void fill_seed(std::span<double> values) const;
  void fill_destination(std::int64_t first, std::span<double> values) const;

  StateUpdate update_;
  std::int64_t seed_;
  const DistributionInfo* distribution_;
  std::vector<double> dt_;             // per head
  std::vector<double> inverse_of_dt_;  // softplus⁻¹(dt)
  std::vector<std::int64_t> slots_;    // all, in a random order
};

}  // namespace ssmbench
