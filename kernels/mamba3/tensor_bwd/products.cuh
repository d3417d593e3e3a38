#pragma once

// Products of 64 × 64 tiles by the 8 warps of a gradient block, and sums over them: by mma.sync, bf16 or tf32, each warp
// a patch of 16 × 32 in registers.

#include "kernels/mamba3/tensor_bwd/fragments.cuh"
#include "kernels/mamba3/tensor_bwd/plan.h"
#include "kernels/ssd_chunk_scan/states.cuh"

namespace ssmbench::mamba3_bwd {

inline constexpr int kGradientWarps = 8;
inline constexpr int kGradientThreads = 32 * kGradientWarps;
inline constexpr int kAtoms = 4;
inline constexpr int kPatchRows = kSteps / 16;
inline constexpr int kPatchColumns = kGradientWarps / kPatchRows;
using Patches = Fragments<kAtoms>;

/// Of an angle tile, a thread's pairs of a patch: 16-byte vectors.
inline constexpr int kPatchVectors = 2 * kAtoms / kAngleVector;

/// A patch of elements of a tile, in pairs.
template <class T>
using PackedPair = std::conditional_t<std::is_same_v<T, float>, float2, std::uint32_t>;
template <class T>
using PackedPatches = PackedPair<T>[kAtoms][2];
template <class T>
__device__ __forceinline__ PackedPair<T> packed_pair(float first, float second) {
  if constexpr (std::is_same_v<T, float>)
    return make_float2(first, second);
  else
    return pack_pair<T>(first, second);
}

/// Sums over the lanes of a patch that have the same columns: x[e] of fragment e goes in, that of fragment
/// atom_of_sum(lane) comes out, in 4 shuffles for all.
__device__ inline float sum_columns(const float (&x)[kAtoms], int lane) {
  static_assert(kAtoms == 4);
  constexpr unsigned kAll = 0xFFFFFFFFU;
  const bool upper = (lane & 4) != 0;
  const bool odd = (lane & 8) != 0;
  const float first = (upper ? x[2] : x[0]) + __shfl_xor_sync(kAll, upper ? x[0] : x[2], 4);
  const float second = (upper ? x[3] : x[1]) + __shfl_xor_sync(kAll, upper ? x[1] : x[3], 4);
  const float sum = (odd ? second : first) + __shfl_xor_sync(kAll, odd ? first : second, 8);
  return sum + __shfl_xor_sync(kAll, sum, 16);
}
__device__ inline int atom_of_sum(int lane) {
  return (lane & 4) / 2 + (lane & 8) / 8;
}

/// += the warp's patch of A·B, from k = `first` to `end` − 1, multiples of 16. Patches of f32 tiles, whose products are
/// tf32, are those of 16-bit ones. (SSD's multiply() has others, without conflicts of banks.)
template <Major kA, Major kB>
__device__ __forceinline__ void multiply_part(Patches& d, const float* a_tile, const float* b_tile,
                                              const Patch& at, int first, int end) {
  const auto a_shared = shared_tile(a_tile);
  const auto b_shared = shared_tile(b_tile);
  const int g = at.lane / 4;
  const int t = at.lane % 4;
#pragma unroll 2
  for (int k = first; k < end; k += 8) {
    std::uint32_t a[4];
    if constexpr (kA == Major::k)
      load_a(a, a_shared, at.row, k / 4, at.lane);
    else
#pragma unroll
      for (int i = 0; i < 4; ++i)
        a[i] = __float_as_uint(a_tile[tile_offset<float>(k + t + i / 2 * 4, at.row + g + i % 2 * 8)]);
#pragma unroll
    for (std::uint32_t& bits : a) bits = round_to_tf32(bits);
#pragma unroll
    for (int e = 0; e < kAtoms; e += 2) {
      const int column = at.column + e * 8;
      std::uint32_t b[4];
      if constexpr (kB == Major::k)
        load_matrices(
            b, b_shared.vector_address(column + at.lane / 16 * 8 + at.lane % 8, k / 4 + at.lane / 8 % 2));
      else
#pragma unroll
        for (int i = 0; i < 4; ++i)
          b[i] = __float_as_uint(b_tile[tile_offset<float>(k + t + i % 2 * 4, column + i / 2 * 8 + g)]);
#pragma unroll
      for (std::uint32_t& bits : b) bits = round_to_tf32(bits);
      mma_tf32(d[e], a, b[0], b[1]);
      mma_tf32(d[e + 1], a, b[2], b[3]);
    }
  }
}
template <Major kA, Major kB>
__device__ __forceinline__ void multiply_part(Patches& d, const __nv_bfloat16* a_tile,
                                              const __nv_bfloat16* b_tile, const Patch& at, int first,
                                              int end) {
  static_assert(kB == Major::mn);
  const auto a_shared = shared_tile(a_tile);
  const auto b_shared = shared_tile(b_tile);
#pragma unroll 1
  for (int k = first; k < end; k += 16) {
    std::uint32_t a[4];
    if constexpr (kA == Major::k)
      load_a(a, a_shared, at.row, k / 8, at.lane);
    else
      load_a_transposed(a, a_shared, k, at.row / 8, at.lane);
#pragma unroll
    for (int e = 0; e < kAtoms; e += 2) {
      std::uint32_t b[4];
      load_b_transposed(b, b_shared, k, (at.column + e * 8) / 8, at.lane);
      mma_bf16(d[e], a, b[0], b[1]);
      mma_bf16(d[e + 1], a, b[2], b[3]);
    }
  }
}
/// += the warp's patch of A·B.
template <Major kA, Major kB, class T>
__device__ __forceinline__ void multiply_tiles(Patches& d, const T* a_tile, const T* b_tile,
                                               const Patch& at) {
  if constexpr (std::is_same_v<T, float>)
    multiply_part<kA, kB>(d, a_tile, b_tile, at, 0, kSteps);
  else
    multiply<kA, kB, kAtoms>(d, a_tile, b_tile, at);
}
/// Rows of M or X, which are 0 above their diagonal, times a tile of steps; the same of its transpose. Both together are
/// 5/8 of two products, in each warp.
template <class T>
__device__ __forceinline__ void multiply_lower(Patches& d, const T* square, const T* tile, const Patch& at) {
  multiply_part<Major::k, Major::mn>(d, square, tile, at, 0, at.row + 16);
}
template <class T>
__device__ __forceinline__ void multiply_upper(Patches& d, const T* square, const T* tile, const Patch& at) {
  multiply_part<Major::mn, Major::mn>(d, square, tile, at, at.row, kSteps);
}

}  // namespace ssmbench::mamba3_bwd
