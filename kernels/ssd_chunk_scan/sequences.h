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

/// The tensors have to fit the problem.
SsdSequenceTable bind_ssd_sequences(const Problem& problem, const TensorSet& tensors);

}  // namespace ssmbench
