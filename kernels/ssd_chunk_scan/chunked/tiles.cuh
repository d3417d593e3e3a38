#pragma once

// How cuda-chunked moves tiles: from memory to shared memory, pairs of z and out between memory and
// registers, and operands from registers to shared memory.

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/common/io_types.cuh"
#include "kernels/ssd_chunk_scan/chunked/scalars.cuh"
#include "kernels/ssd_chunk_scan/range.h"

namespace ssmbench::chunked {

/// Copies `rows` × `columns` elements from `source` (rows `stride` elements apart) into a tile of kChunkSteps
/// rows, zeros around them, by kThreads threads. Asynchronous where rows are `aligned` to 16 bytes.
template <int kThreads, class Tile, class Io>
__device__ void fill_tile(const Tile& tile, const Io* source, int stride, int rows, int columns,
                          bool aligned) {
  constexpr int kElements = Tile::kVectorElements;
  constexpr int kVectorsPerRow = Tile::kRowBytes / 16;
  constexpr int kRowStep = kThreads / kVectorsPerRow;
  static_assert(kThreads % kVectorsPerRow == 0 && kChunkSteps % kRowStep == 0);
  const int vector = static_cast<int>(threadIdx.x) % kVectorsPerRow;
  const int first = static_cast<int>(threadIdx.x) / kVectorsPerRow;
  const int count = max(0, min(kElements, columns - vector * kElements));
  const Io* from = source + static_cast<std::int64_t>(first) * stride + vector * kElements;
  const uint4 zeros = make_uint4(0, 0, 0, 0);
  if (aligned) {  // the row's length too: a vector is there or not
#pragma unroll
    for (int i = 0; i < kChunkSteps / kRowStep; ++i) {
      const int row = first + i * kRowStep;
      if (row < rows && count > 0)
        copy_async_16(tile.vector_address(row, vector),
                      from + static_cast<std::int64_t>(i * kRowStep) * stride);
      else
        *reinterpret_cast<uint4*>(tile.vector(row, vector)) = zeros;
    }
    return;
  }
#pragma unroll 1
  for (int row = first; row < kChunkSteps; row += kRowStep) {
    Io values[kElements];
#pragma unroll
    for (int e = 0; e < kElements; ++e)
      values[e] = row < rows && e < count ? from[static_cast<std::int64_t>(row - first) * stride + e]
                                          : from_float<Io>(0.0F);
    uint4 bits;
    memcpy(&bits, values, sizeof bits);
    *reinterpret_cast<uint4*>(tile.vector(row, vector)) = bits;
  }
}

/// Elements p and p + 1 of a row of z or out, p even: one register, or two.
template <class Io>
using Pair = std::conditional_t<sizeof(Io) == 4, float2, std::uint32_t>;

template <class Io>
__device__ float2 unpacked(Pair<Io> pair) {
  if constexpr (sizeof(Io) == 4)
    return pair;
  else
    return unpack_pair<Io>(pair);
}
template <class Io>
__device__ Pair<Io> packed(float2 pair) {
  if constexpr (sizeof(Io) == 4)
    return pair;
  else
    return pack_pair<Io>(pair.x, pair.y);
}

/// A lane's elements of z and out in a chunk: pairs of rows g and g + 8 of its warp's slab, in 2 or 4 blocks of
/// 8 columns.
struct OutTile {
  std::int64_t at;          ///< of the first pair, in elements
  std::int64_t row_stride;  ///< between g and g + 8
  int rows, columns;        ///< that exist from the first pair on, 0 or less where none does

  __device__ std::int64_t offset(int block, int r) const { return at + r * row_stride + 8 * block; }
  /// How many elements of a pair exist.
  __device__ int count(int block, int r) const {
    return 8 * r < rows ? max(0, min(2, columns - 8 * block)) : 0;
  }
};

/// One pair; kWhole: it exists, and is aligned as a word.
template <bool kWhole, class Io>
__device__ Pair<Io> load_pair(const Io* memory, int count) {
  if constexpr (kWhole) return *reinterpret_cast<const Pair<Io>*>(memory);
  Io values[2] = {from_float<Io>(0.0F), from_float<Io>(0.0F)};
  if (count > 0) values[0] = memory[0];
  if (count > 1) values[1] = memory[1];
  Pair<Io> pair;
  memcpy(&pair, values, sizeof pair);
  return pair;
}
template <bool kWhole, class Io>
__device__ void store_pair(Io* memory, float2 pair, int count) {
  if constexpr (kWhole) {
    *reinterpret_cast<Pair<Io>*>(memory) = packed<Io>(pair);
  } else {
    if (count > 0) memory[0] = from_float<Io>(pair.x);
    if (count > 1) memory[1] = from_float<Io>(pair.y);
  }
}

template <bool kWhole, class Io, int kBlocks>
__device__ void load_gates(Pair<Io> (&gates)[kBlocks][2], const Io* z, const OutTile& out) {
#pragma unroll
  for (int i = 0; i < 2 * kBlocks; ++i)
    gates[i / 2][i % 2] = load_pair<kWhole>(z + out.offset(i / 2, i % 2), out.count(i / 2, i % 2));
}

/// The largest of what two warps have that share a slab. `maxima`: two numbers for each slab.
__device__ inline float largest_of_slab(float largest, const WarpTile<2>& warp_tile, float* maxima) {
  for (int distance = 16; distance > 0; distance /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, distance));
  maxima[2 * warp_tile.slab + warp_tile.part] = largest;
  asm volatile("bar.sync %0, 64;\n" ::"r"(1 + warp_tile.slab) : "memory");
  return fmaxf(maxima[2 * warp_tile.slab], maxima[2 * warp_tile.slab + 1]);
}

/// Calls store(i, r, pair) for the squares of C·Bᵀ that a warp has, with decay, Δ and mask: row 8·r of block i.
template <bool kSequences, class Op, int kSquares, int kParts, class Store>
__device__ void mask_squares(const Op& op, const float (&products)[kSquares][2][4],
                             const ChunkScalars& scalars, const WarpTile<kParts>& warp_tile,
                             const Store& store) {
  const int t = 16 * warp_tile.slab + op.lane / 4;  // and t + 8
  const float row_sums[2] = {scalars.sum[t], scalars.sum[t + 8]};
  [[maybe_unused]] const float row_rests[2] = {scalars.sum_rest[t], scalars.sum_rest[t + 8]};
#pragma unroll
  for (int i = 0; i < 2 * kSquares; ++i) {  // block i % 2 of 8 columns of square i / 2
    if (i / 2 >= warp_tile.squares()) continue;
    const int s = 16 * warp_tile.square_column(i / 2) + 8 * (i % 2) + 2 * (op.lane % 4);  // and s + 1
    const float2 deltas = *reinterpret_cast<const float2*>(scalars.delta + s);
    const float2 sums = *reinterpret_cast<const float2*>(scalars.sum + s);
    float2 rests{};
    if constexpr (Op::kSplitSums) rests = *reinterpret_cast<const float2*>(scalars.sum_rest + s);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float2 exponents = make_float2(row_sums[r] - sums.x, row_sums[r] - sums.y);
      if constexpr (Op::kSplitSums) {
        exponents.x += row_rests[r] - rests.x;
        exponents.y += row_rests[r] - rests.y;
      }
      bool first = s <= t + 8 * r;
      bool second = s < t + 8 * r;
      if constexpr (kSequences) {
        first = first && scalars.sequence[s] == scalars.sequence[t + 8 * r];
        second = second && scalars.sequence[s + 1] == scalars.sequence[t + 8 * r];
      }
      const float2 decays = make_float2(decay_of<Op>(first ? exponents.x : -INFINITY),
                                        decay_of<Op>(second ? exponents.y : -INFINITY));
      store(i, r,
            make_float2(products[i / 2][i % 2][2 * r] * decays.x * deltas.x,
                        products[i / 2][i % 2][2 * r + 1] * decays.y * deltas.y));
    }
  }
}

/// The same to shared memory as operands. With a narrow range each slab is scaled by a power of two: by its own
/// largest element, since Δ may be 10^5 times as large at one step as at the next. Returns its inverse.
template <bool kSequences, class Op, class Tile, int kSquares, int kParts>
__device__ float store_masked(const Op& op, const Tile& square, const float (&products)[kSquares][2][4],
                              const ChunkScalars& scalars, const WarpTile<kParts>& warp_tile, float* maxima) {
  const auto store = [&](int i, int r, float2 pair) {
    op.store_pair(square, 16 * warp_tile.slab + op.lane / 4 + 8 * r,
                  16 * warp_tile.square_column(i / 2) + 8 * (i % 2) + 2 * (op.lane % 4), pair);
  };
  if constexpr (!Op::kNarrowRange) {
    mask_squares<kSequences>(op, products, scalars, warp_tile, store);
    return 1.0F;
  } else {
    float2 masked[4][2] = {};
    float largest = 0.0F;
    mask_squares<kSequences>(op, products, scalars, warp_tile, [&](int i, int r, float2 pair) {
      masked[i][r] = pair;
      largest = fmaxf(largest, fmaxf(fabsf(pair.x), fabsf(pair.y)));
    });
    const int exponent = exponent_to(largest_of_slab(largest, warp_tile, maxima), kTopTarget);
    const float scale = power_of_two(exponent);
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int r = 0; r < 2; ++r)
        if (i / 2 < warp_tile.squares())
          store(i, r, make_float2(scale * masked[i][r].x, scale * masked[i][r].y));
    return power_of_two(-exponent);
  }
}

/// A warp's tile of the state as operands to shared memory. With a narrow range each slab is scaled by a
/// power of two, which the two warps that share it agree upon; `maxima` then holds the inverses.
template <class Op, class Tile, int kBlocks, int kParts>
__device__ void store_state(const Op& op, const Tile& tile, const float (&state)[kBlocks][4],
                            const WarpTile<kParts>& warp_tile, float* maxima) {
  float scale = 1.0F;
  if constexpr (Op::kNarrowRange) {
    float largest = 0.0F;
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) largest = fmaxf(largest, fabsf(state[i][e]));
    scale = power_of_two(exponent_to(largest_of_slab(largest, warp_tile, maxima), kTileTarget));
  }
  const int g = op.lane / 4;
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
    const int n = 8 * (warp_tile.part * kBlocks + i) + 2 * (op.lane % 4);
#pragma unroll
    for (int r = 0; r < 2; ++r)
      op.store_pair(tile, 16 * warp_tile.slab + g + 8 * r, n,
                    make_float2(scale * state[i][2 * r], scale * state[i][2 * r + 1]));
  }
}

template <class Op>
__device__ float state_unscale(const float* maxima, int slab) {
  if constexpr (!Op::kNarrowRange) return 1.0F;
  return power_of_two(-exponent_to(fmaxf(maxima[2 * slab], maxima[2 * slab + 1]), kTileTarget));
}

}  // namespace ssmbench::chunked
