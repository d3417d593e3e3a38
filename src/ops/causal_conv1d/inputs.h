#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "inputs/distributions.h"
#include "model/input_spec.h"
#include "ops/causal_conv1d/causal_conv1d.h"

namespace ssmbench {

/// The exact values, before rounding to a dtype, of the inputs of causal_conv1d_fwd and _bwd. weight and bias
/// are uniform in ±1/√W, as torch.nn.Conv1d initialises them; all others are N(0, 1), with the distribution's
/// extremes where it has some. seq_idx is runs of one to a quarter of the steps, a quarter of the runs of at
/// most W steps: most have a new number, an eighth -1, and an eighth the number of the run before the last.
class ConvInputs {
 public:
  /// Throws UsageError for an unknown distribution.
  ConvInputs(const Problem& problem, const InputSpec& spec);

  /// Elements first, first + 1, … (row-major logical order) of the named tensor, all in one row.
  void fill(std::string_view tensor, std::int64_t first, std::span<double> values) const;

 private:
  CausalConv1d conv_;
  std::int64_t seed_;
  const DistributionInfo* distribution_;
  std::vector<std::int32_t> seq_idx_;  // (B, L)
};

/// The same of causal_conv1d_update. Sources are drawn without repetition from all slots, and destinations
/// apart from them; every fourth row is padding if there are pads.
class ConvUpdateInputs {
 public:
  /// Throws UsageError for an unknown distribution.
  ConvUpdateInputs(const Problem& problem, const InputSpec& spec);

  /// Elements first, first + 1, … (row-major logical order) of the named tensor, all in one row.
  void fill(std::string_view tensor, std::int64_t first, std::span<double> values) const;

 private:
  ConvUpdate update_;
  std::int64_t seed_;
  const DistributionInfo* distribution_;
  std::vector<std::int64_t> source_, destination_;  // (B,)
};

}  // namespace ssmbench
