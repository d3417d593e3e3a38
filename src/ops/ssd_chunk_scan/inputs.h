#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "inputs/distributions.h"
#include "model/case.h"
#include "model/problem.h"
#include "ops/ssd_chunk_scan/ssd_chunk_scan.h"

namespace ssmbench {

/// The exact values, before rounding to a dtype, of the inputs of ssd_chunk_scan_fwd and _bwd.
/// A is uniform in [-16, -1] per head and dt_bias the inverse softplus of a step log-uniform in the
/// distribution's range, as Mamba-2 initialises them (mamba_ssm's mamba2.py: A_init_range, dt_min, dt_max);
/// distributions that name decay rates draw -A from them. seq_idx counts sequences from 0: there are one per
/// 1024 steps and four more, of any length, at least one of them of a single step. cu_seqlens is drawn as the
/// axis lengths has it.
class SsdChunkScanInputs {
 public:
  /// Throws UsageError for an unknown distribution.
  SsdChunkScanInputs(const Problem& problem, const InputSpec& spec);

  /// Elements first, first + 1, … (row-major logical order) of the named tensor, all in one row.
  void fill(std::string_view tensor, std::int64_t first, std::span<double> values) const;

 private:
  void fill_decay(std::int64_t first, std::span<double> values) const;
  void fill_dt(std::int64_t first, std::span<double> values) const;
  void fill_dt_bias(std::int64_t first, std::span<double> values) const;
  void fill_seq_idx(std::int64_t first, std::span<double> values) const;
  void fill_states_at(std::int64_t first, std::span<double> values) const;

  SsdChunkScan scan_;
  std::int64_t seed_;
  const DistributionInfo* distribution_;
  std::vector<double> step_;             // per head
  std::vector<double> inverse_of_step_;  // softplus⁻¹(step)
  std::vector<std::int64_t> borders_;    // cu_seqlens
  std::int64_t stops_;                   // of states_at
};

}  // namespace ssmbench
