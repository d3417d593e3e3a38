#pragma once

// 64 × 64 tiles in shared memory and their products on the tensor cores, for the SSD kernels that
// keep the states of all chunks.
//
// A warp owns a patch of a product, 16 rows × 8·kEights columns, in registers as mma fragments: with
// g = lane / 4 and t = lane % 4, element i of fragment e is
//
//   row    first row    + g + 8·(i / 2)
//   column first column + 8·e + 2t + i % 2

#include "kernels/common/index_math.h"
#include "kernels/common/io_types.cuh"
#include "kernels/common/mma.cuh"
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

/// x in another type: rounded once at most.
template <class To, class From>
__device__ To converted(From x) {
  if constexpr (std::is_same_v<To, From>)
    return x;
  else
    return from_float<To>(to_float(x));
}

/// Which part of a product a thread of a warp holds.
struct Patch {
  int row, column;  ///< first ones of the warp's patch
  int lane;

  __device__ int row_of(int i) const { return row + lane / 4 + i / 2 * 8; }
  __device__ int column_of(int e, int i) const { return column + e * 8 + lane % 4 * 2 + i % 2; }
};

template <int kEights>
using Fragments = float[kEights][4];

template <int kEights>
__device__ void clear(Fragments<kEights>& x) {
#pragma unroll
  for (int e = 0; e < kEights; ++e)
#pragma unroll
    for (int i = 0; i < 4; ++i) x[e][i] = 0.0F;
}

/// How an operand lies in its tile: as the product takes it (rows of A by k, columns of B by k: both
/// k-contiguous), or the other way round.
enum class Lies { along_k, across_k };

/// 16 × 16 elements of a tile as four 8 × 8 matrices; the first two are neighbours along rows if
/// `rows_first`, else along columns.
template <class T, bool kTransposed>
__device__ void load_16x16(std::uint32_t (&r)[4], const T* tile, int row, int column, int lane,
                           bool rows_first) {
  const int matrix = lane / 8;
  const int down = rows_first ? matrix & 1 : matrix >> 1;
  const int right = rows_first ? matrix >> 1 : matrix & 1;
  const T* address = tile + tile_offset<T>(row + down * 8 + lane % 8, column + right * 8);
  if constexpr (kTransposed)
    load_matrices_transposed(r, shared_address(address));
  else
    load_matrices(r, shared_address(address));
}

/// d += the warp's patch of A·B, 64 deep. A: tile of (row, k), or of (k, row) if it lies across k. B: tile of
/// (column, k), or of (k, column).
template <Lies kA, Lies kB, int kEights, class T>
__device__ void multiply(Fragments<kEights>& d, const T* a_tile, const T* b_tile, const Patch& at) {
#pragma unroll
  for (int k = 0; k < kSide<T>; k += 16) {
    std::uint32_t a[4];
    if constexpr (kA == Lies::along_k)
      load_16x16<T, false>(a, a_tile, at.row, k, at.lane, true);
    else
      load_16x16<T, true>(a, a_tile, k, at.row, at.lane, false);
#pragma unroll
    for (int e = 0; e < kEights; e += 2) {
      std::uint32_t b[4];
      if constexpr (kB == Lies::along_k)
        load_16x16<T, false>(b, b_tile, at.column + e * 8, k, at.lane, false);
      else
        load_16x16<T, true>(b, b_tile, k, at.column + e * 8, at.lane, true);
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

/// Element of an operand, as tf32.
template <Lies kLies>
__device__ std::uint32_t load_tf32(const float* tile, int row, int k) {
  return round_to_tf32(
      tile[kLies == Lies::along_k ? tile_offset<float>(row, k) : tile_offset<float>(k, row)]);
}

/// The same for f32 tiles, as tf32. (Matrix loads transpose 16-bit elements only.)
template <Lies kA, Lies kB, int kEights>
__device__ void multiply(Fragments<kEights>& d, const float* a_tile, const float* b_tile, const Patch& at) {
  const int g = at.lane / 4;
  const int t = at.lane % 4;
#pragma unroll 4
  for (int k = 0; k < kSide<float>; k += 8) {
    const std::uint32_t a[4] = {
        load_tf32<kA>(a_tile, at.row + g, k + t), load_tf32<kA>(a_tile, at.row + g + 8, k + t),
        load_tf32<kA>(a_tile, at.row + g, k + t + 4), load_tf32<kA>(a_tile, at.row + g + 8, k + t + 4)};
#pragma unroll
    for (int e = 0; e < kEights; ++e)
      mma_tf32(d[e], a, load_tf32<kB>(b_tile, at.column + e * 8 + g, k + t),
               load_tf32<kB>(b_tile, at.column + e * 8 + g, k + t + 4));
  }
}

/// d += unscale·A·B, the operands having been scaled by 1/unscale in all. With the range of f32 they are not:
/// unscale is 1.
template <Lies kA, Lies kB, int kEights, class T>
__device__ void multiply(Fragments<kEights>& d, const T* a_tile, const T* b_tile, const Patch& at,
                         float unscale) {
  if constexpr (kNarrowRange<T>) {
    // Not d·(1/unscale) first: what d has already may be too large for that.
    Fragments<kEights> product;
    clear<kEights>(product);
    multiply<kA, kB, kEights>(product, a_tile, b_tile, at);
#pragma unroll
    for (int e = 0; e < kEights; ++e)
#pragma unroll
      for (int i = 0; i < 4; ++i) d[e][i] += unscale * product[e][i];
  } else {
    multiply<kA, kB, kEights>(d, a_tile, b_tile, at);
  }
}

/// Largest magnitude of a patch.
template <int kEights>
__device__ float largest(const Fragments<kEights>& x) {
  float result = 0.0F;
#pragma unroll
  for (int e = 0; e < kEights; ++e)
#pragma unroll
    for (int i = 0; i < 4; ++i) result = fmaxf(result, fabsf(x[e][i]));
  return result;
}

/// The largest x, all at least 0, of the warp.
__device__ inline float largest_of_warp(float x) {
#pragma unroll
  for (int bit = 1; bit < 32; bit *= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFU, x, bit));
  return x;
}

/// The same of the block, with one barrier. `parts`: kWarps floats in shared memory, free again after the
/// next barrier.
template <int kWarps>
__device__ float largest_of_block(float x, float* parts) {
  x = largest_of_warp(x);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) x = fmaxf(x, parts[warp]);
  return x;
}

/// Fragments, scaled and rounded, to their places in a tile.
template <int kEights, class T>
__device__ void store_patch(T* tile, const Fragments<kEights>& x, const Patch& at, float scale) {
#pragma unroll
  for (int e = 0; e < kEights; ++e)
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

/// 16 bytes of a row of a tile.
template <class T>
inline constexpr int kPart = 16 / static_cast<int>(sizeof(T));
template <class T>
inline constexpr int kTileParts = kTileElements<T> / kPart<T>;

/// Offset of part i of a tile, counted along rows.
template <class T>
__device__ int part_offset(int i) {
  constexpr int kParts = kSide<T> / kPart<T>;
  return tile_offset<T>(i / kParts, i % kParts * kPart<T>);
}

template <class T>
__device__ void load_part(float (&x)[kPart<T>], const T* part) {
  const uint4 bits = *reinterpret_cast<const uint4*>(part);
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
__device__ void store_part(T* part, const float (&x)[kPart<T>]) {
  std::uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(T) == 2)
      words[i] = pack_pair<T>(x[2 * i], x[2 * i + 1]);
    else
      words[i] = __float_as_uint(x[i]);
  }
  *reinterpret_cast<uint4*>(part) = make_uint4(words[0], words[1], words[2], words[3]);
}

/// Four k's of an operand's row from `row` on, and of `kRows` − 1 more; `row` is a multiple of kRows, k of 4.
template <Lies kLies, int kRows, int kTileSide>
__device__ void load_fours(float (&x)[kRows][4], const ExactF32<kTileSide>* tile, int row, int k) {
#pragma unroll
  for (int i = 0; i < (kLies == Lies::along_k ? kRows : 4); ++i) {
    if constexpr (kLies == Lies::along_k) {
      load_part(x[i], tile + tile_offset<ExactF32<kTileSide>>(row + i, k));
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
template <Lies kA, Lies kB, int kEights, int kTileSide>
__device__ void multiply(Fragments<kEights>& d, const ExactF32<kTileSide>* a_tile,
                         const ExactF32<kTileSide>* b_tile, const Patch& at) {
#pragma unroll 1  // twice at a time spills four times as many registers
  for (int k = 0; k < kTileSide; k += 4) {
    float a[2][1][4];
    load_fours<kA, 1>(a[0], a_tile, at.row_of(0), k);
    load_fours<kA, 1>(a[1], a_tile, at.row_of(2), k);
#pragma unroll
    for (int e = 0; e < kEights; ++e) {
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
  bool aligned;  ///< 16-byte parts of it are aligned, and whole or absent
};

/// True where all rows of a matrix whose rows have `columns` elements start at multiples of 16 bytes.
template <class T>
__device__ bool parts_aligned(std::int64_t columns) {
  return columns % kPart<T> == 0;
}

/// Calls call(i) for the thread's share of the parts of a tile. (The number of calls is a constant that the
/// compiler could not see in a loop from threadIdx.x on.)
template <int kThreads, class T, class Call>
__device__ void for_parts(const Call& call) {
  static_assert(kTileParts<T> % kThreads == 0);
#pragma unroll
  for (int k = 0; k < kTileParts<T> / kThreads; ++k) call(k * kThreads + static_cast<int>(threadIdx.x));
}

/// Starts the copies of a tile; what does not exist becomes zeros. Where the tensor has another type the
/// elements are converted, and there when the call returns.
template <int kThreads, class T, class Io>
__device__ void load_tile(T* tile, const TileSource<const Io>& source) {
  if constexpr (std::is_same_v<T, Io>) {
    if (source.aligned) {
      for_parts<kThreads, T>([&](int i) {
        const int row = i / (kSide<T> / kPart<T>);
        const int column = i % (kSide<T> / kPart<T>)*kPart<T>;
        const bool exists = row < source.rows && column < source.columns;
        copy_async_16(shared_address(tile + part_offset<T>(i)),
                      source.data + (exists ? row * source.pitch + column : 0), exists ? 16 : 0);
      });
      return;
    }
  }
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < kTileElements<T>; i += kThreads) {
    const int row = i / kSide<T>;
    const int column = i % kSide<T>;
    const bool exists = row < source.rows && column < source.columns;
    tile[tile_offset<T>(row, column)] =
        exists ? converted<T>(source.data[row * source.pitch + column]) : from_float<T>(0.0F);
  }
}

/// The existing part of a tile to global memory.
template <int kThreads, class T, class Io>
__device__ void store_tile(const TileSource<Io>& target, const T* tile) {
  if constexpr (std::is_same_v<T, Io>) {
    if (target.aligned) {
      for_parts<kThreads, T>([&](int i) {
        const int row = i / (kSide<T> / kPart<T>);
        const int column = i % (kSide<T> / kPart<T>)*kPart<T>;
        if (row < target.rows && column < target.columns)
          *reinterpret_cast<uint4*>(target.data + row * target.pitch + column) =
              *reinterpret_cast<const uint4*>(tile + part_offset<T>(i));
      });
      return;
    }
  }
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < kTileElements<T>; i += kThreads) {
    const int row = i / kSide<T>;
    const int column = i % kSide<T>;
    if (row < target.rows && column < target.columns)
      target.data[row * target.pitch + column] = converted<Io>(tile[tile_offset<T>(row, column)]);
  }
}

/// Starts the copies of a whole tile from the workspace, where it lies as in shared memory.
template <int kThreads, class T>
__device__ void load_image(T* tile, const T* image) {
  for_parts<kThreads, T>(
      [&](int i) { copy_async_16(shared_address(tile + i * kPart<T>), image + i * kPart<T>, 16); });
}

}  // namespace ssmbench
