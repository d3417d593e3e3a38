#pragma once

#include <cstdint>

namespace ssmbench {

class Problem;

/// The sequences of an ssd_chunk_scan problem: with cu_seqlens those that are packed into its batch of 1, else
/// one for each of the batch.
struct SsdSequences {
  bool packed;         ///< there is cu_seqlens
  std::int64_t count;  ///< M

  explicit SsdSequences(const Problem& problem);
};

}  // namespace ssmbench
