#pragma once

// Sums over the rows (step, rank) that a warp has of a product of tensor cores: lane / 4 and 8 more.

namespace ssmbench::mamba3_bwd {

/// Over the lanes that have the same columns and rows of the same rank.
template <int kRanks>
__device__ inline float sum_rank(float x) {
#pragma unroll
  for (int bit = 4 * kRanks; bit < 32; bit *= 2) x += __shfl_xor_sync(0xFFFFFFFFU, x, bit);
  return x;
}
/// Over the rows of a step.
template <int kRanks>
__device__ inline float sum_step(float x) {
#pragma unroll
  for (int bit = 4; bit < 4 * kRanks; bit *= 2) x += __shfl_xor_sync(0xFFFFFFFFU, x, bit);
  return x;
}

}  // namespace ssmbench::mamba3_bwd
