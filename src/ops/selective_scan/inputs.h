#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "inputs/distributions.h"
#include "model/case.h"
#include "model/problem.h"
#include "ops/selective_scan/selective_scan.h"

namespace ssmbench {

/// The exact values, before rounding to a dtype, of the inputs of selective_scan_fwd and _bwd.
class ScanInputs {
 public:
  /// Throws UsageError for an unknown distribution.
  ScanInputs(const Problem& problem, const InputSpec& spec);

  /// Elements first, first + 1, … (row-major logical order) of the named tensor, complex ones as their
  /// real_view. All of them lie in one row, that is, they differ in the last logical index only.
  void fill(std::string_view tensor, std::int64_t first, std::span<double> values) const;

 private:
  void fill_decay(std::int64_t first, std::span<double> values) const;
  void fill_complex_decay(std::int64_t first, std::span<double> values) const;
  void fill_dense_decay(std::int64_t first, std::span<double> values) const;
  void fill_delta(std::int64_t first, std::span<double> values) const;
  void fill_delta_bias(std::int64_t first, std::span<double> values) const;

  SelectiveScan scan_;
  std::int64_t seed_;
  const DistributionInfo* distribution_;
  std::vector<double> dt_;             // per channel
  std::vector<double> inverse_of_dt_;  // softplus⁻¹(dt)
  std::vector<std::int64_t> borders_;  // cu_seqlens
};

}  // namespace ssmbench
