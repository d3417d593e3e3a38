#pragma once

#include <cstdint>

namespace ssmbench {

class Problem;
struct OpSpec;

/// The bare first-order recurrence that every scan algorithm is built on:
///   h_t = a_t·h_{t-1} + b_t, h_{-1} = 0, for each (batch, channel)
/// a, b and out are (batch, seqlen, dim) in the io dtype, dim innermost in memory; out holds every h_t.
/// Source: Blelloch, "Prefix Sums and Their Applications" (1990), section 1.4.
const OpSpec& linear_scan();

/// The axes of a linear_scan problem as plain numbers.
struct LinearScan {
  std::int64_t batch, seqlen, dim;

  explicit LinearScan(const Problem& problem);
  double elements() const {
    return static_cast<double>(batch) * static_cast<double>(seqlen) * static_cast<double>(dim);
  }
};

}  // namespace ssmbench
