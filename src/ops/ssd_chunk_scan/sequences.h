#pragma once

#include <cstdint>

#include "model/dtype.h"

namespace ssmbench {

class Problem;

/// The sequences of an ssd_chunk_scan problem: with cu_seqlens those that are packed into its batch of 1, else
/// one for each of the batch.
struct SsdSequences {
  bool packed;         ///< there is cu_seqlens
  std::int64_t count;  ///< M
  std::int64_t stops;  ///< K of states_at: states on the way that are wanted; 0 but with cu_seqlens
  DType state_dtype;   ///< of the states that enter and leave, and of those on the way

  explicit SsdSequences(const Problem& problem);
};

}  // namespace ssmbench
