#pragma once

#include "kernels/common/scalar_math.h"

// The step-doubling scan in shared memory, one step of time per thread.
//
//   thread       0      1      2      3      4      5        [i-j]: the map of steps i to j
//   offset 1    [0]   [0-1]  [1-2]  [2-3]  [3-4]  [4-5]      each combines with the thread 1 before it
//   offset 2    [0]   [0-1]  [0-2]  [0-3]  [1-4]  [2-5]      2 before it
//   offset 4    [0]   [0-1]  [0-2]  [0-3]  [0-4]  [0-5]      4 before it
//
// Depth log2(tile) barriers, the fewest; work tile·log2(tile) combinations, all threads busy. Shared
// memory: two buffers in turn, so that one barrier per doubling is enough: a buffer is written again only
// past the barrier that follows its last read.
//
// Source: Hillis & Steele, "Data Parallel Algorithms", Communications of the ACM 29 (1986), section "All
// Partial Sums of an Array"; the combination from Blelloch (1990), section 1.4.

namespace ssmbench {

/// The thread's own value combined with those of all threads before it. All kThreads threads call this, with
/// a barrier between two calls on the same buffers; it has barriers of the whole block within.
template <int kThreads, class T, class Combine>
__device__ T hillis_steele_scan(T (&buffers)[2][kThreads], int thread, T own, Combine joined) {
  int buffer = 0;
  for (int offset = 1; offset < kThreads; offset *= 2) {
    buffers[buffer][thread] = own;
    __syncthreads();
    if (thread >= offset) own = joined(buffers[buffer][thread - offset], own);
    buffer ^= 1;
  }
  return own;
}

template <int kBlockThreads>
struct HillisSteele {
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kItems = 1;
  static constexpr int kTileSteps = kThreads;

  struct Shared {
    DecayValue maps[2][kThreads];
  };

  /// The map of a step with decay e^exponent, or `decay`.
  static __device__ DecayValue of_exponent(float exponent, float value) { return {expf(exponent), value}; }
  static __device__ DecayValue of_decay(float decay, float value) { return {decay, value}; }

  /// The state h after each thread's step. All kThreads threads call this, with a barrier between two calls.
  static __device__ void scan(Shared& shared, int thread, const DecayValue (&maps)[kItems], float state,
                              float (&h)[kItems]) {
    const DecayValue entering{1.0F, state};
    const DecayValue own = thread == 0 ? combine(entering, maps[0]) : maps[0];
    h[0] = hillis_steele_scan(shared.maps, thread, own, [](DecayValue first, DecayValue second) {
             return combine(first, second);
           }).value;
  }
};

}  // namespace ssmbench
