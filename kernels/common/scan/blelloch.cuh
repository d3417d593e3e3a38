#pragma once

#include "kernels/common/scalar_math.h"
#include "kernels/common/scan/blelloch_map.h"

// The work-efficient scan: a tree over the tile in shared memory, once up and once down.
//
//   step        0    1    2    3    4    5    6    7      [i..j]: the map of steps i to j
//   up 1           [0,1]     [2,3]     [4,5]     [6,7]    a pair of neighbours per thread
//   up 2                     [0-3]               [4-7]    half the threads
//   up 4                                         [0-7]
//   root                                           s      replaced by the state s that enters the tile
//   down 4                     s               [0-3]s     left takes the parent's, right [left]·parent
//   down 2           s       [0,1]s    [0-3]s    [0-5]s
//   down 1      s  [0]s  [0,1]s  …                        what entered each step; its own map gives h
//
// Depth 2·log2(tile) barriers, work 2·tile combinations, against tile·log2(tile) of Hillis and Steele;
// but fewer and fewer threads have any near the root. Shared memory: two words per step.
//
// Source: Blelloch, "Prefix Sums and Their Applications" (1990), figures 1.4 and 1.5, with the combination of
// section 1.4.

namespace ssmbench {

template <int kBlockThreads>
struct Blelloch {
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kItems = 2;  ///< steps per thread: each thread starts on one pair
  static constexpr int kTileSteps = kThreads * kItems;

  struct Shared {
    float decay[padded_index(kTileSteps)];
    float value[padded_index(kTileSteps)];
  };

  /// The map of a step with decay e^exponent, or `decay`.
  static __device__ DecayValue of_exponent(float exponent, float value) { return {expf(exponent), value}; }
  static __device__ DecayValue of_decay(float decay, float value) { return {decay, value}; }

  /// The states h after each step: item i of a thread is step i·kThreads + thread. All kThreads threads call
  /// this, with a barrier between two calls; it has barriers of the whole block within.
  static __device__ void scan(Shared& tree, int thread, const DecayValue (&maps)[kItems], float state,
                              float (&h)[kItems]) {
    for (int i = 0; i < kItems; ++i) put(tree, i * kThreads + thread, maps[i]);
    for (int stride = 1; stride <= kThreads; stride *= 2) {
      __syncthreads();
      if (thread >= kThreads / stride) continue;
      const auto [left, right] = blelloch_pair(thread, stride);
      put(tree, right, combine(get(tree, left), get(tree, right)));
    }
    if (thread == 0)
      put(tree, kTileSteps - 1, {1.0F, state});  // thread 0 wrote the root, nobody else reads it yet
    for (int stride = kThreads; stride >= 1; stride /= 2) {
      __syncthreads();
      if (thread >= kThreads / stride) continue;
      const auto [left, right] = blelloch_pair(thread, stride);
      const DecayValue parent = get(tree, right);
      put(tree, right, combine(parent, get(tree, left)));
      put(tree, left, parent);
    }
    __syncthreads();
    for (int i = 0; i < kItems; ++i) h[i] = combine(get(tree, i * kThreads + thread), maps[i]).value;
  }

 private:
  static __device__ DecayValue get(const Shared& tree, int step) {
    return {tree.decay[padded_index(step)], tree.value[padded_index(step)]};
  }
  static __device__ void put(Shared& tree, int step, DecayValue map) {
    tree.decay[padded_index(step)] = map.decay;
    tree.value[padded_index(step)] = map.value;
  }
};

}  // namespace ssmbench
