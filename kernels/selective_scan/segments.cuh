#pragma once

// The states at the ends of segments of time (segments.h): a scan over segments.
//
//   block    32 neighbouring states of all channels, a lane each; a warp for each run of neighbouring segments
//
//     reduce   each warp: (Π decays, end) of its run, from zero
//     carry    each warp: the true state before its run, from those pairs of all warps before it, in order
//     apply    each warp: the true states at the ends of its segments
//
// A run has 8 segments, whose loads are in flight together, or more where there are more than 256 segments.
// Shared memory: 8 KB, 16 KB for complex states. All orders are fixed.

#include "kernels/common/hopper/dependent_launch.cuh"
#include "kernels/common/launch.cuh"
#include "kernels/selective_scan/segments.h"
#include "kernels/selective_scan/states.cuh"

namespace ssmbench {

inline constexpr int kCombineMaxWarps = 32;
inline constexpr int kCombineAtOnce = 8;  ///< loads in flight together

/// decay·state + end. No state leaves nothing, whatever the decays: their product may be infinite where A is
/// positive.
__device__ inline float after_segment(float decay, float state, float end) {
  return state == 0.0F ? end : fmaf(decay, state, end);
}
__device__ inline Complex after_segment(Complex decay, Complex state, Complex end) {
  return state.re == 0.0F && state.im == 0.0F ? end : multiply_add(decay, state, end);
}

/// `initial`: (B, D, N) or null.
template <class Value>
__global__ void __launch_bounds__(kCombineMaxWarps* kWarpThreads)
    combine_kernel(const SegmentStates segments, const float* initial) {
  __shared__ Value run_decays[kCombineMaxWarps][kWarpThreads];
  __shared__ Value run_ends[kCombineMaxWarps][kWarpThreads];
  hopper::launch_dependents();
  hopper::wait_for_prerequisites();
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int count = static_cast<int>(segments.segments.count) - 1;
  const int run = (count + static_cast<int>(blockDim.x) / kWarpThreads - 1) /
                  (static_cast<int>(blockDim.x) / kWarpThreads);
  const int first = warp * run;
  const int end = min(first + run, count);
  const std::int64_t state = static_cast<std::int64_t>(blockIdx.x) * kWarpThreads + lane;
  const bool exists = state < segments.states;
  const std::int64_t at = exists ? state : 0;
  const Value* const decays = reinterpret_cast<const Value*>(segments.decays) + at;
  Value* const ends = reinterpret_cast<Value*>(segments.ends) + at;
  // Calls call(segment, its decay, its end) for those of the warp.
  const auto for_run = [&](const auto& call) {
    for (int from = first; from < end; from += kCombineAtOnce) {
      Value decay[kCombineAtOnce], local[kCombineAtOnce];
#pragma unroll
      for (int k = 0; k < kCombineAtOnce; ++k) {
        const std::int64_t segment = min(from + k, end - 1);
        decay[k] = decays[segment * segments.states];
        local[k] = ends[segment * segments.states];
      }
#pragma unroll
      for (int k = 0; k < kCombineAtOnce; ++k)
        if (from + k < end) call(from + k, decay[k], local[k]);
    }
  };

  Value product = Value{} + 1.0F;
  Value value{};
  for_run([&](int /*segment*/, Value decay, Value local) {
    product = product * decay;
    value = after_segment(decay, value, local);
  });
  run_decays[warp][lane] = product;
  run_ends[warp][lane] = value;
  __syncthreads();
  value = initial != nullptr ? values_of<Value>(initial)[at] : Value{};
  for (int before = 0; before < warp; ++before)
    value = after_segment(run_decays[before][lane], value, run_ends[before][lane]);
  for_run([&](int segment, Value decay, Value local) {
    value = after_segment(decay, value, local);
    if (exists) ends[segment * segments.states] = value;
  });
}

/// The launch that makes the ends of all segments but the last true. There are at least two. `early`: on
/// devices that have it, it may begin before what makes the ends from zero has ended.
template <class Value>
Launch combine_launch(const SegmentStates& segments, const float* initial, bool early) {
  const std::int64_t blocks = ceil_div(segments.states, kWarpThreads);
  const std::int64_t warps =
      std::min<std::int64_t>(ceil_div(segments.segments.count - 1, kCombineAtOnce), kCombineMaxWarps);
  const auto threads = static_cast<unsigned>(warps * kWarpThreads);
  if (early) return hopper::dependent_launch_of(combine_kernel<Value>, blocks, threads, 0, segments, initial);
  return launch_of(combine_kernel<Value>, blocks, threads, 0, segments, initial);
}

}  // namespace ssmbench
