#pragma once

// Powers of two that keep operands in the range of f16 (range.h), in the kernels for Hopper.

#include <cstdint>

#include "kernels/ssd_chunk_scan/range.h"
#include "kernels/ssd_chunk_scan/tile.cuh"

namespace ssmbench {

/// 1/power, for a power of two that is a normal number, as is its inverse.
__device__ inline float inverse_of_power(float power) {
  return __uint_as_float((254U << 23) - __float_as_uint(power));
}

/// largest_of_warp of numbers that are at least 0, by one instruction of compute capability 8.0; code for older
/// GPUs compiles.
__device__ inline float largest_of_lanes(float x) {
#if __CUDA_ARCH__ >= 800
  return __uint_as_float(__reduce_max_sync(0xFFFFFFFFU, __float_as_uint(x)));  // bits are in their order
#else
  return largest_of_warp(x);
#endif
}

/// The largest magnitude of a thread's numbers, by four chains that do not wait for one another.
template <int kCount>
__device__ __forceinline__ float largest_of(const float (&numbers)[kCount]) {
  float largest[4]{};
#pragma unroll
  for (int i = 0; i < kCount; ++i) largest[i % 4] = fmaxf(largest[i % 4], fabsf(numbers[i]));
  return fmaxf(fmaxf(largest[0], largest[1]), fmaxf(largest[2], largest[3]));
}

/// The power of two that moves the lanes' largest number, all at least 0, to `target`; as much as leaves room
/// in f32 for sums that are scaled with it.
__device__ inline float scale_of_lanes(float x, int target) {
  constexpr float kLeast = 0x1p-60F;
  return scale_to(largest_of_lanes(fmaxf(kLeast, x)), target).up;
}

}  // namespace ssmbench
