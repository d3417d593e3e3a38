#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "inputs/distributions.h"
#include "model/case.h"
#include "model/problem.h"
#include "ops/linear_scan/linear_scan.h"

namespace ssmbench {

/// The exact values, before rounding to a dtype, of the inputs of linear_scan: a = e^(−Δ·r) as the selective
/// scan would see it, with Δ = softplus(x + softplus⁻¹(dt)) per element as in DistributionInfo, dt per
/// channel and r per channel (1 to 16 in turn, as Mamba's A with dstate 16, or log-uniform); b ~ N(0, 1).
class LinearScanInputs {
 public:
  /// Throws UsageError for an unknown distribution.
  LinearScanInputs(const Problem& problem, const InputSpec& spec);

  /// Elements first, first + 1, … (row-major) of the named tensor, all of one (batch, step).
  void fill(std::string_view tensor, std::int64_t first, std::span<double> values) const;

 private:
  std::int64_t dim_;
  std::int64_t seed_;
  const DistributionInfo* distribution_;
  std::vector<double> centre_;  // softplus⁻¹(dt), per channel
  std::vector<double> rate_;    // r, per channel
};

}  // namespace ssmbench
