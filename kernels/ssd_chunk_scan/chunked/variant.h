#pragma once

#include <cstdint>

#include "kernels/ssd_chunk_scan/args.h"
#include "kernels/ssd_chunk_scan/chunked/map.h"
#include "kernels/ssd_chunk_scan/sequences.h"

namespace ssmbench {

/// What a launch of the kernel does beyond its arguments.
struct ChunkedPass {
  ChunkedPlan plan;
  SsdSequenceTable sequences;
  std::int64_t segments;  ///< that this launch has blocks for: the plan's, or all but the last
  bool states_only;       ///< the first pass: end states of segments that start from nothing
  /// (M, H, segments − 1, P, N), M sequences. First pass: end states; after the second: states that enter segments 1, 2, …
  float* states;
  float* decays;      ///< (M, H, segments − 1): of whole segments. Both have one where there is one segment
  bool rows_aligned;  ///< the rows of x of a head start at multiples of 16 bytes
  bool projections_aligned;  ///< those of B and C do
  bool pairs_aligned;        ///< two elements of z and out at an even p are one aligned word
};

/// The kernel for an arithmetic and a padded number of states, and the threads and dynamic shared memory of its
/// blocks.
struct ChunkedVariant {
  void (*kernel)(SsdArgs, ChunkedPass);
  int threads;
  int shared_bytes;
};

/// `Op` is one of ops.cuh, `states` of padded_states().
template <class Op>
ChunkedVariant chunked_variant(int states);

}  // namespace ssmbench
