#pragma once

#include <cstdint>

#include "kernels/common/host_device.h"

namespace ssmbench {

class Problem;
class TensorSet;

/// Steps of batch × seqlen that are one sequence.
struct SsdSequence {
  std::int64_t begin, steps;
};

/// The sequences of an ssd_chunk_scan: one a batch, or those that are packed into the only one. States are one
/// a sequence.
struct SsdSequenceTable {
  std::int64_t count;
  std::int64_t seqlen;             ///< of a batch
  const std::int32_t* cu_seqlens;  ///< (count + 1,) in the device's memory, or null

  SSMBENCH_HD SsdSequence at(std::int64_t sequence) const {
    if (cu_seqlens == nullptr) return {sequence * seqlen, seqlen};
    return {cu_seqlens[sequence], cu_seqlens[sequence + 1] - cu_seqlens[sequence]};
  }
};

/// States on the way that are wanted, in host memory: CPU implementations alone have them.
struct SsdStops {
  std::int64_t count;
  const std::int32_t* states_at;  ///< (count,): steps of L, in any order; null where there are none
  void* states;                   ///< (count, H, P, N) state_dtype

  /// The first step from `step` on, below `end`, whose state is wanted, or `end` − 1.
  std::int64_t next(std::int64_t step, std::int64_t end) const {
    std::int64_t found = end - 1;
    for (std::int64_t k = 0; k < count; ++k)
      if (states_at[k] >= step && states_at[k] < found) found = states_at[k];
    return found;
  }
};

/// The tensors have to fit the problem.
SsdStops bind_ssd_stops(const Problem& problem, const TensorSet& tensors);
SsdSequenceTable bind_ssd_sequences(const Problem& problem, const TensorSet& tensors);

}  // namespace ssmbench
