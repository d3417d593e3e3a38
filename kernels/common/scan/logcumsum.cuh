#pragma once

#include "kernels/common/scan/hillis_steele.cuh"

// The recurrence as two cumulative sums, as it is written where a framework has cumsum and no scan:
//
//   S_t = Σ_{s ≤ t} ln a_s              cumulative sum over the tile
//   h_t = e^(S_t)·(h_in + Σ_{s ≤ t} e^(−S_s)·b_s)
//
//   thread t    ln a_t → S_t → e^(−S_t)·b_t → sum → ·e^(S_t) → h_t        one step of time per thread
//
// In f32 e^(−S) overflows as soon as |S| passes 88, and then h is infinite, or NaN where e^(S) has
// underflowed as well. Well before, S carries an error of its own size that a decay near 1 does not show: the
// relative error of h is about |S| roundings. It is kept as people write it: rescaling the sum by its largest
// term (Heinsen's log-sum-exp, for positive b) or a shorter tile hides the overflow and does not cure it.
//
// Depth 2·log2(tile) barriers and work 2·tile·log2(tile) additions, with the sums by step doubling
// (hillis_steele.cuh). Shared memory: four words per step.
//
// Source: Heinsen, "Efficient Parallelization of a Ubiquitous Sequential Computation" (2023), eq. 3 to 5.

namespace ssmbench {

inline constexpr const char* kLogCumSumSummary =
    "log-space cumulative sums over tiles of 64 steps; overflows once a tile's log decays sum past 88";
inline constexpr const char* kLogCumSumFailure =
    "e^-S overflows once |S|, the sum of the log decays in a tile, passes 88; its rounding grows "
    "with |S| before that";

template <int kBlockThreads>
struct LogCumSum {
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kItems = 1;
  static constexpr int kTileSteps = kThreads;

  struct Shared {
    float exponents[2][kThreads];
    float values[2][kThreads];
  };

  /// A step with decay e^exponent, or `decay`; here the pair holds the logarithm of the decay.
  static __device__ DecayValue of_exponent(float exponent, float value) { return {exponent, value}; }
  static __device__ DecayValue of_decay(float decay, float value) { return {logf(decay), value}; }

  /// The state h after each thread's step. All kThreads threads call this, with a barrier between two calls.
  static __device__ void scan(Shared& shared, int thread, const DecayValue (&steps)[kItems], float state,
                              float (&h)[kItems]) {
    const auto sum = [](float first, float second) { return first + second; };
    const float exponent = hillis_steele_scan(shared.exponents, thread, steps[0].decay, sum);
    const float scaled = expf(-exponent) * steps[0].value;
    h[0] = expf(exponent) * (state + hillis_steele_scan(shared.values, thread, scaled, sum));
  }
};

}  // namespace ssmbench
