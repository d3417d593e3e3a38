#pragma once

// 64 × 64 tiles in shared memory and their products on the tensor cores, for the SSD kernels that
// keep the states of all chunks.
//
// A warp owns a patch of a product, 16 rows × 8·kAtoms columns, in registers as mma fragments: with
// g = lane / 4 and t = lane % 4, element i of fragment e is
//
//   row    first row    + g + 8·(i / 2)
//   column first column + 8·e + 2t + i % 2

#include "kernels/common/index_math.h"
#include "kernels/common/io_types.cuh"
#include "kernels/common/mma_tile.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/ssd_chunk_scan/chunk_grid.h"
#include "kernels/ssd_chunk_scan/range.h"

namespace ssmbench {

/// f16 has so few exponents that what decays and Δ scale must be moved into its range (range.h), and the
/// products back.
template <class T>
inline constexpr bool kNarrowRange = std::is_same_v<T, __half>;

template <int kTileSide>
__device__ float to_float(ExactF32<kTileSide> x) {
  return x.value;
}
template <>
__device__ inline WideF32 from_float<WideF32>(float x) {
  return {x};
}
template <>
__device__ inline CompactF32 from_float<CompactF32>(float x) {
  return {x};
}

/// The patch of a product that a warp holds, as one of its lanes sees it.
struct Patch {
  int row, column;  ///< first ones of the warp's patch
  int lane;

  __device__ int row_of(int i) const { return row + lane / 4 + i / 2 * 8; }
  __device__ int column_of(int e, int i) const { return column + e * 8 + lane % 4 * 2 + i % 2; }
};

/// The patch of products of f32 tiles in tf32. A fragment's columns are two fours, 16 or so apart: for a tile whose
/// rows are k they are then in other banks than one another, and so are their rows where k runs along them.
struct SplitPatch : Patch {
  /// Column `j` (0 … 7) of fragment `e`, from the patch's first on.
  __device__ static int split(int e, int j) { return e / 4 * 32 + j / 4 * 16 + (e % 4 ^ j / 4) * 4 + j % 4; }
  __device__ int column_of(int e, int i) const { return column + split(e, lane % 4 * 2) + i % 2; }
};
template <class T>
using PatchOf = std::conditional_t<std::is_same_v<T, float>, SplitPatch, Patch>;

template <int kAtoms>
using Fragments = float[kAtoms][4];

template <int kAtoms>
__device__ void clear(Fragments<kAtoms>& x) {
#pragma unroll
  for (int e = 0; e < kAtoms; ++e)
#pragma unroll
    for (int i = 0; i < 4; ++i) x[e][i] = 0.0F;
}

/// Which index of an operand is contiguous in its tile: that of the sum, or that of the product.
enum class Major { k, mn };

/// A tile of T as mma_tile.cuh reads it.
template <class T>
__device__ SharedTile<T, kSide<T>> shared_tile(const T* tile) {
  return {reinterpret_cast<unsigned char*>(const_cast<T*>(tile))};
}

/// d += the warp's patch of A·B, 64 deep. A: tile of (row, k), or of (k, row) if it is Major::mn. B: tile of
/// (column, k), or of (k, column).
template <Major kA, Major kB, int kAtoms, class T>
__device__ void multiply(Fragments<kAtoms>& d, const T* a_tile, const T* b_tile, const Patch& at) {
  const auto a_shared = shared_tile(a_tile);
  const auto b_shared = shared_tile(b_tile);
#pragma unroll
  for (int k = 0; k < kSide<T>; k += 16) {
    std::uint32_t a[4];
    if constexpr (kA == Major::k)
      load_a(a, a_shared, at.row, k / 8, at.lane);
    else
      load_a_transposed(a, a_shared, k, at.row / 8, at.lane);
#pragma unroll
    for (int e = 0; e < kAtoms; e += 2) {
      const int column = at.column + e * 8;
      std::uint32_t b[4];
      if constexpr (kB == Major::k)
        load_b(b, b_shared, column, k / 8, at.lane);
      else
        load_b_transposed(b, b_shared, k, column / 8, at.lane);
      if constexpr (std::is_same_v<T, __half>) {
        mma_f16(d[e], a, b[0], b[1]);
        mma_f16(d[e + 1], a, b[2], b[3]);
      } else {
        mma_bf16(d[e], a, b[0], b[1]);
        mma_bf16(d[e + 1], a, b[2], b[3]);
      }
    }
  }
}

/// The same for f32 tiles, as tf32. (Matrix loads transpose 16-bit elements only.)
template <Major kA, Major kB, int kAtoms>
__device__ void multiply(Fragments<kAtoms>& d, const float* a_tile, const float* b_tile,
                         const SplitPatch& at) {
  const auto a_shared = shared_tile(a_tile);
  const auto b_shared = shared_tile(b_tile);
  const int g = at.lane / 4;
  const int t = at.lane % 4;
  const auto round = [](std::uint32_t(&r)[4]) {
#pragma unroll
    for (std::uint32_t& bits : r) bits = round_to_tf32(bits);
  };
#pragma unroll 4
  for (int k = 0; k < kSide<float>; k += 8) {
    std::uint32_t a[4];
    if constexpr (kA == Major::k)
      load_a(a, a_shared, at.row, k / 4, at.lane);
    else
#pragma unroll
      for (int i = 0; i < 4; ++i)
        a[i] = __float_as_uint(a_tile[tile_offset<float>(k + t + i / 2 * 4, at.row + g + i % 2 * 8)]);
    round(a);
#pragma unroll
    for (int e = 0; e < kAtoms; e += 2) {
      std::uint32_t b[4];
      if constexpr (kB == Major::k)
        load_matrices(b, b_shared.vector_address(at.column + SplitPatch::split(e + at.lane / 16, at.lane % 8),
                                                 k / 4 + at.lane / 8 % 2));
      else
#pragma unroll
        for (int i = 0; i < 4; ++i)
          b[i] = __float_as_uint(
              b_tile[tile_offset<float>(k + t + i % 2 * 4, at.column + SplitPatch::split(e + i / 2, g))]);
      round(b);
      mma_tf32(d[e], a, b[0], b[1]);
      mma_tf32(d[e + 1], a, b[2], b[3]);
    }
  }
}

/// d += unscale·A·B, the operands having been scaled by 1/unscale in all. With the range of f32 they are not:
/// unscale is 1.
template <Major kA, Major kB, int kAtoms, class T>
__device__ void multiply(Fragments<kAtoms>& d, const T* a_tile, const T* b_tile, const PatchOf<T>& at,
                         float unscale) {
  if constexpr (kNarrowRange<T>) {
    // Not d·(1/unscale) first: what d has already may be too large for that.
    Fragments<kAtoms> product;
    clear<kAtoms>(product);
    multiply<kA, kB, kAtoms>(product, a_tile, b_tile, at);
#pragma unroll
    for (int e = 0; e < kAtoms; ++e)
#pragma unroll
      for (int i = 0; i < 4; ++i) d[e][i] += unscale * product[e][i];
  } else {
    multiply<kA, kB, kAtoms>(d, a_tile, b_tile, at);
  }
}

/// Largest magnitude of a patch.
template <int kAtoms>
__device__ float largest(const Fragments<kAtoms>& x) {
  float result = 0.0F;
#pragma unroll
  for (int e = 0; e < kAtoms; ++e)
#pragma unroll
    for (int i = 0; i < 4; ++i) result = fmaxf(result, fabsf(x[e][i]));
  return result;
}

/// Sum over the lanes whose index differs in the bits of `mask` (a run of bits).
template <int kFirst, int kLast>
__device__ float sum_lanes(float x) {
#pragma unroll
  for (int bit = kFirst; bit <= kLast; bit *= 2) x += __shfl_xor_sync(0xFFFFFFFFU, x, bit);
  return x;
}

/// The largest x, all at least 0, of the warp.
__device__ inline float largest_of_warp(float x) {
#pragma unroll
  for (int bit = 1; bit < 32; bit *= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFU, x, bit));
  return x;
}

/// The same of the block, with one barrier. `of_warps`: kWarps floats in shared memory, free again after the
/// next barrier.
template <int kWarps>
__device__ float largest_of_block(float x, float* of_warps) {
  x = largest_of_warp(x);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = x;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) x = fmaxf(x, of_warps[warp]);
  return x;
}

/// Fragments, scaled and rounded, to their places in a tile.
template <int kAtoms, class T>
__device__ void store_fragments(T* tile, const Fragments<kAtoms>& x, const PatchOf<T>& at, float scale) {
#pragma unroll
  for (int e = 0; e < kAtoms; ++e)
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      T* pair = tile + tile_offset<T>(at.row_of(i), at.column_of(e, i));
      if constexpr (sizeof(T) == 2)
        *reinterpret_cast<std::uint32_t*>(pair) = pack_pair<T>(scale * x[e][i], scale * x[e][i + 1]);
      else
        *reinterpret_cast<float2*>(pair) = make_float2(scale * x[e][i], scale * x[e][i + 1]);
    }
}

/// Two neighbouring elements of a row, from an even column on.
template <class T>
__device__ float2 load_pair(const T* tile, int row, int column) {
  const T* pair = tile + tile_offset<T>(row, column);
  if constexpr (sizeof(T) == 2)
    return unpack_pair<T>(*reinterpret_cast<const std::uint32_t*>(pair));
  else
    return *reinterpret_cast<const float2*>(pair);
}

template <class T>
__device__ void store_pair(T* tile, int row, int column, float2 x) {
  T* pair = tile + tile_offset<T>(row, column);
  if constexpr (sizeof(T) == 2)
    *reinterpret_cast<std::uint32_t*>(pair) = pack_pair<T>(x.x, x.y);
  else
    *reinterpret_cast<float2*>(pair) = x;
}

template <class T>
inline constexpr int kTileVectors = kTileElements<T> / kVectorElements<T>;

/// Offset of 16-byte vector i of a tile, counted along rows.
template <class T>
__device__ int vector_offset(int i) {
  constexpr int kVectorsPerRow = kSide<T> / kVectorElements<T>;
  return tile_offset<T>(i / kVectorsPerRow, i % kVectorsPerRow * kVectorElements<T>);
}

template <class T>
__device__ void load_vector(float (&x)[kVectorElements<T>], const T* vector) {
  const uint4 bits = *reinterpret_cast<const uint4*>(vector);
  const std::uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(T) == 2) {
      const float2 pair = unpack_pair<T>(words[i]);
      x[2 * i] = pair.x;
      x[2 * i + 1] = pair.y;
    } else {
      x[i] = __uint_as_float(words[i]);
    }
  }
}

template <class T>
__device__ void store_vector(T* vector, const float (&x)[kVectorElements<T>]) {
  std::uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(T) == 2)
      words[i] = pack_pair<T>(x[2 * i], x[2 * i + 1]);
    else
      words[i] = __float_as_uint(x[i]);
  }
  *reinterpret_cast<uint4*>(vector) = make_uint4(words[0], words[1], words[2], words[3]);
}

/// Four k's of an operand's row from `row` on, and of `kRows` − 1 more; `row` is a multiple of kRows, k of 4.
template <Major kMajor, int kRows, int kTileSide>
__device__ void load_fours(float (&x)[kRows][4], const ExactF32<kTileSide>* tile, int row, int k) {
#pragma unroll
  for (int i = 0; i < (kMajor == Major::k ? kRows : 4); ++i) {
    if constexpr (kMajor == Major::k) {
      load_vector(x[i], tile + tile_offset<ExactF32<kTileSide>>(row + i, k));
    } else if constexpr (kRows == 2) {
      const float2 pair = load_pair(tile, k + i, row);
      x[0][i] = pair.x;
      x[1][i] = pair.y;
    } else {
      x[0][i] = tile[tile_offset<ExactF32<kTileSide>>(k + i, row)].value;
    }
  }
}

/// multiply() in f32: a lane multiplies its two rows of A and two columns of each block of B itself.
template <Major kA, Major kB, int kAtoms, int kTileSide>
__device__ void multiply(Fragments<kAtoms>& d, const ExactF32<kTileSide>* a_tile,
                         const ExactF32<kTileSide>* b_tile, const Patch& at) {
#pragma unroll 1  // twice at a time spills four times as many registers
  for (int k = 0; k < kTileSide; k += 4) {
    float a[2][1][4];
    load_fours<kA, 1>(a[0], a_tile, at.row_of(0), k);
    load_fours<kA, 1>(a[1], a_tile, at.row_of(2), k);
#pragma unroll
    for (int e = 0; e < kAtoms; ++e) {
      float b[2][4];
      load_fours<kB, 2>(b, b_tile, at.column_of(e, 0), k);
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) d[e][i] += a[i / 2][0][j] * b[i % 2][j];
    }
  }
}

/// Part of a matrix in global memory that fills a tile: `rows` × `columns` of it exist (0 to 64 each).
template <class T>
struct TileSource {
  T* data;
  std::int64_t pitch;  ///< elements between rows
  int rows, columns;
  bool aligned;  ///< 16-byte vectors of it are aligned, and whole or absent
};

/// True where all rows of a matrix whose rows have `columns` elements start at multiples of 16 bytes.
template <class T>
__device__ bool vectors_aligned(std::int64_t columns) {
  return columns % kVectorElements<T> == 0;
}

/// Calls call(i) for the thread's share of the vectors of a tile. (The number of calls is a constant that the
/// compiler could not see in a loop from threadIdx.x on.)
template <int kThreads, class T, class Call>
__device__ void for_vectors(const Call& call) {
  static_assert(kTileVectors<T> % kThreads == 0);
#pragma unroll
  for (int k = 0; k < kTileVectors<T> / kThreads; ++k) call(k * kThreads + static_cast<int>(threadIdx.x));
}

/// Starts the copies of a tile; what does not exist becomes zeros.
template <int kThreads, class T>
__device__ void load_tile(T* tile, const TileSource<const T>& source) {
  if (source.aligned) {
    for_vectors<kThreads, T>([&](int i) {
      const int row = i / (kSide<T> / kVectorElements<T>);
      const int column = i % (kSide<T> / kVectorElements<T>)*kVectorElements<T>;
      const bool exists = row < source.rows && column < source.columns;
      copy_async_16(shared_address(tile + vector_offset<T>(i)),
                    source.data + (exists ? row * source.pitch + column : 0), exists ? 16 : 0);
    });
    return;
  }
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < kTileElements<T>; i += kThreads) {
    const int row = i / kSide<T>;
    const int column = i % kSide<T>;
    const bool exists = row < source.rows && column < source.columns;
    tile[tile_offset<T>(row, column)] =
        exists ? source.data[row * source.pitch + column] : from_float<T>(0.0F);
  }
}

/// The existing part of a tile to global memory.
template <int kThreads, class T>
__device__ void store_tile(const TileSource<T>& target, const T* tile) {
  if (target.aligned) {
    for_vectors<kThreads, T>([&](int i) {
      const int row = i / (kSide<T> / kVectorElements<T>);
      const int column = i % (kSide<T> / kVectorElements<T>)*kVectorElements<T>;
      if (row < target.rows && column < target.columns)
        *reinterpret_cast<uint4*>(target.data + row * target.pitch + column) =
            *reinterpret_cast<const uint4*>(tile + vector_offset<T>(i));
    });
    return;
  }
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < kTileElements<T>; i += kThreads) {
    const int row = i / kSide<T>;
    const int column = i % kSide<T>;
    if (row < target.rows && column < target.columns)
      target.data[row * target.pitch + column] = tile[tile_offset<T>(row, column)];
  }
}

/// Starts the copies of a whole tile from the workspace, where it lies as in shared memory.
template <int kThreads, class T>
__device__ void load_image(T* tile, const T* image) {
  for_vectors<kThreads, T>([&](int i) {
    copy_async_16(shared_address(tile + i * kVectorElements<T>), image + i * kVectorElements<T>, 16);
  });
}

}  // namespace ssmbench
