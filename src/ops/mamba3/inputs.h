#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "inputs/distributions.h"
#include "model/input_spec.h"
#include "ops/mamba3/mamba3.h"

namespace ssmbench {

/// The exact values, before rounding to a dtype, of the inputs of Mamba-3's operations, as its module makes
/// them (mamba_ssm's mamba3.py): Q and K are RMS-normed over states; their biases 1, D 1, MIMO_V and MIMO_Out
/// 1/R, MIMO_Z and the norm's weight 1, each with a deviation of a tenth so that a mix-up shows; DT
/// log-uniform per head with softplus's deviations per step; ADT = −a·DT with a = 1 + x, or 1/(1 − x) for
/// x < 0, x ~ N(0, 1); a distribution that names decay rates draws a per head from them. Trap, Angles, V, Z
/// and the states but for angles, which are uniform in [0, 2π), are N(0, 1), with the distribution's extremes
/// where it has some, as has DT. Of packed sequences the first
/// has one step where there are three or more, and the second none where there are four or more.
class Mamba3Inputs {
 public:
  /// Throws UsageError for an unknown distribution.
  Mamba3Inputs(const Problem& problem, const InputSpec& spec);

  /// Elements first, first + 1, … (row-major) of the named tensor, all in one row.
  void fill(std::string_view tensor, std::int64_t first, std::span<double> values) const;

 private:
  std::int64_t head_of(std::int64_t scalar) const { return scalar / scan_.seqlen % scan_.nheads; }
  void fill_projection(std::string_view tensor, std::int64_t first, std::span<double> values) const;
  void fill_steps(std::int64_t first, std::span<double> values) const;
  void fill_decays(std::int64_t first, std::span<double> values) const;
  void fill_borders(std::int64_t first, std::span<double> values) const;

  Mamba3 scan_;
  std::int64_t seed_;
  const DistributionInfo* distribution_;
  std::vector<double> inverse_of_step_;  // softplus⁻¹ of DT, per head
  std::vector<double> rate_;             // per head; empty where each step has its own
};

}  // namespace ssmbench
