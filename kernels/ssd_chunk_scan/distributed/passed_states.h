#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/common/host_device.h"
#include "kernels/distributed/local_scan.h"

// What states and gradients of states become as they pass shards: products of decays, in doubles, rounded once
// where they become a state. Host and device.
//
// The summary of a shard: ΣΔ of each head, whose decay over the shard is e^(A·ΣΔ), as two floats since A
// multiplies its error; and with seq_idx the first and the last number of each batch, as bits. A state passes
// a shard only where these are equal, and a border between shards where the numbers on both sides are.

namespace ssmbench::ssd_shards {

/// Where a summary has the numbers of batch b, in floats.
SSMBENCH_HD constexpr std::int64_t numbers_at(std::int64_t batch, std::int64_t nheads, std::int64_t b) {
  return 2 * (batch * nheads + b);
}

/// What the payloads of all ranks hold; a row counts (batch, head).
struct PassedStates {
  const float* A;
  std::int64_t batch, nheads, of_head;  ///< states of a head
  bool has_numbers;
  std::int64_t summary_at;  ///< in a payload, in floats
  Payloads payloads;

  SSMBENCH_HD const float* summary_of(int rank) const { return payloads.of(rank) + summary_at; }
  /// The first (0) or last (1) number of a row's batch in the shard of a rank.
  SSMBENCH_HD std::int32_t number(int rank, std::int64_t row, int which) const {
    std::int32_t bits = 0;
    memcpy(&bits, summary_of(rank) + numbers_at(batch, nheads, row / nheads) + which, sizeof bits);
    return bits;
  }
  /// Whether a sequence goes on from the shard of a rank to that of the next.
  SSMBENCH_HD bool passes_border(int rank, std::int64_t row) const {
    return !has_numbers || number(rank, row, 1) == number(rank + 1, row, 0);
  }
  /// The decay of a row over the shard of a rank; 0 where a sequence begins in it.
  SSMBENCH_HD double decay_of(int rank, std::int64_t row) const {
    if (has_numbers && number(rank, row, 0) != number(rank, row, 1)) return 0;
    const float* sum = summary_of(rank) + 2 * row;
    return exp((static_cast<double>(sum[0]) + static_cast<double>(sum[1])) *
               static_cast<double>(A[row % nheads]));
  }
  /// What is 0 stays so, and is not multiplied by a decay that overflows.
  SSMBENCH_HD static double passed(double state, double decay) {
    return state == 0 || decay == 0 ? 0 : decay * state;
  }

  /// What becomes of a state that leaves the shard of a rank, through the next.
  SSMBENCH_HD double through_next(int rank, std::int64_t row) const {
    return passes_border(rank, row) ? decay_of(rank + 1, row) : 0;
  }
  /// What becomes of a gradient behind the shard of a rank, to before it.
  SSMBENCH_HD double back_through(int rank, std::int64_t row) const {
    return passes_border(rank, row) ? decay_of(rank, row) : 0;
  }
  /// LocalScan::enter of state i of a row. decay(q): through_next(q), perhaps known before.
  template <class Decay>
  SSMBENCH_HD float entering(int rank, std::int64_t row, std::int64_t i, const Decay& decay) const {
    double h = static_cast<double>(payloads.of(0)[i]);
    for (int q = 0; q + 1 < rank; ++q) h = passed(h, decay(q)) + static_cast<double>(payloads.of(q + 1)[i]);
    return passes_border(rank - 1, row) ? static_cast<float>(h) : 0.0F;
  }
  /// LocalScan::enter_from_after of state i of a row. decay(q): back_through(q), perhaps known before.
  template <class Decay>
  SSMBENCH_HD float from_after(std::int64_t carries, int rank, int ranks, std::int64_t row, std::int64_t i,
                               const Decay& decay) const {
    double g = static_cast<double>(payloads.of(ranks - 1)[carries + i]);
    for (int q = ranks - 2; q > rank; --q)
      g = passed(g, decay(q)) + static_cast<double>(payloads.of(q)[carries + i]);
    return passes_border(rank, row) ? static_cast<float>(g) : 0.0F;
  }
};

}  // namespace ssmbench::ssd_shards
