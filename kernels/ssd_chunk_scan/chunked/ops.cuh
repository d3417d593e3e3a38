#pragma once

// The matrix arithmetics of cuda-chunked behind one interface: how a warp reads fragments of a shared tile
// and multiplies them. Tiles are row-major and swizzled (mma_tile.cuh). A step is kStep of the summation
// index, 32 bytes of a tile's row where that index runs along the row. Results D are 16 × 8 in f32, as in
// mma.cuh: lane (g, t) holds rows g and g + 8 of columns 2t and 2t + 1.
//
//   load_a             A[m][k] from a tile [m][k]: 16 rows from `row` on
//   load_masked        the same, of a tile that multiplies one read by load_b_transposed
//   load_b_stored      load_b of a tile that store_pair has written
//   load_a_transposed  A[m][k]·weight[k] from a tile [k][m]: columns `column` … + 15
//   load_b             B[k][n] from a tile [n][k]: rows `row` … + 15, which are two blocks of 8 columns n
//   load_b_transposed  B[k][n] from a tile [k][n]: columns `column` … + 15, two blocks of n
//   multiply           D += A·B for block `which` of the two
//   load_pair, store_pair   columns c and c + 1 of a row, c even; stored as operands, rounded once
//   kParts             warps that share 16 rows of a product: of 8 warps in a block, or of 16

#include <cstdint>

#include "kernels/common/io_types.cuh"
#include "kernels/common/mma_tile.cuh"

namespace ssmbench {

__device__ inline int lane_id() {
  return static_cast<int>(threadIdx.x) % 32;
}

/// What all tensor core arithmetics share: fragments along rows, which are the same 32 bytes for 16 elements
/// of 16 bits and 8 of 32.
struct TensorCoreLoads {
  int lane;

  struct A {
    std::uint32_t r[4];
  };
  struct B {
    std::uint32_t r[4];  ///< two blocks, two registers each
  };

  template <class Tile>
  __device__ A load_a(const Tile& tile, int row, int step) const {
    A a;
    ssmbench::load_a(a.r, tile, row, 2 * step, lane);
    return a;
  }
  template <class Tile>
  __device__ B load_b(const Tile& tile, int row, int step) const {
    B b;
    ssmbench::load_b(b.r, tile, row, 2 * step, lane);
    return b;
  }
  template <class Tile>
  __device__ B load_b_stored(const Tile& tile, int row, int step) const {
    return load_b(tile, row, step);
  }
};

/// Operands f16 or bf16.
template <class Io>
struct HalfProducts : TensorCoreLoads {
  using Element = Io;
  static constexpr int kParts = 2;
  static constexpr int kStep = 16;
  /// f16 has so few exponents that what decays and Δ scale must be moved into its range.
  static constexpr bool kNarrowRange = std::is_same_v<Io, __half>;
  /// Whether sums of Δ·A are kept in two floats: where an error of 2^-24·|sum| would show.
  static constexpr bool kSplitSums = kNarrowRange;
  static constexpr bool kExact = false;

  template <class Tile>
  __device__ A load_masked(const Tile& tile, int row, int step) const {
    return load_a(tile, row, step);
  }
  template <class Tile>
  __device__ B load_b_transposed(const Tile& tile, int step, int column) const {
    B b;
    ssmbench::load_b_transposed(b.r, tile, 16 * step, column / 8, lane);
    return b;
  }
  template <class Tile>
  __device__ A load_a_transposed(const Tile& tile, int column, int step, const float* weight) const {
    A a;
    ssmbench::load_a_transposed(a.r, tile, 16 * step, column / 8, lane);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int k = 16 * step + 8 * (i / 2) + 2 * (lane % 4);
      const float2 w = *reinterpret_cast<const float2*>(weight + k);
      const float2 x = unpack_pair<Io>(a.r[i]);
      a.r[i] = pack_pair<Io>(x.x * w.x, x.y * w.y);
    }
    return a;
  }
  __device__ void multiply(float (&d)[4], const A& a, const B& b, int which) const {
    if constexpr (std::is_same_v<Io, __half>)
      mma_f16(d, a.r, b.r[2 * which], b.r[2 * which + 1]);
    else
      mma_bf16(d, a.r, b.r[2 * which], b.r[2 * which + 1]);
  }
  template <class Tile>
  __device__ float2 load_pair(const Tile& tile, int row, int column) const {
    return unpack_pair<Io>(*reinterpret_cast<const std::uint32_t*>(tile.at(row, column)));
  }
  template <class Tile>
  __device__ void store_pair(const Tile& tile, int row, int column, float2 pair) const {
    *reinterpret_cast<std::uint32_t*>(tile.at(row, column)) = pack_pair<Io>(pair.x, pair.y);
  }
};

/// f32 tensors, operands rounded to tf32. Where the summation index is time it is taken in another order, the
/// same on both sides: k and k + 4 of a step stand for steps 2k and 2k + 1 of time, which lie in different
/// banks. A block alone fills an SM's shared memory: it has 16 warps, so that there are enough of them.
struct Tf32Products : TensorCoreLoads {
  using Element = float;
  static constexpr int kParts = 4;
  static constexpr int kStep = 8;
  static constexpr bool kNarrowRange = false;
  static constexpr bool kSplitSums = true;
  static constexpr bool kExact = false;

  __device__ static void round(std::uint32_t (&r)[4]) {
#pragma unroll
    for (std::uint32_t& bits : r) bits = round_to_tf32(bits);
  }
  template <class Tile>
  __device__ A load_a(const Tile& tile, int row, int step) const {
    A a = TensorCoreLoads::load_a(tile, row, step);
    round(a.r);
    return a;
  }
  template <class Tile>
  __device__ B load_b(const Tile& tile, int row, int step) const {
    B b = TensorCoreLoads::load_b(tile, row, step);
    round(b.r);
    return b;
  }
  template <class Tile>
  __device__ B load_b_stored(const Tile& tile, int row, int step) const {
    return TensorCoreLoads::load_b(tile, row, step);
  }
  template <class Tile>
  __device__ A load_masked(const Tile& tile, int row, int step) const {
    const int g = lane / 4;
    const int k = 8 * step + 2 * (lane % 4);
    const float2 upper = load_pair(tile, row + g, k);
    const float2 lower = load_pair(tile, row + g + 8, k);
    return {{__float_as_uint(upper.x), __float_as_uint(lower.x), __float_as_uint(upper.y),
             __float_as_uint(lower.y)}};  // store_pair has rounded them
  }
  template <class Tile>
  __device__ B load_b_transposed(const Tile& tile, int step, int column) const {
    const int g = lane / 4;
    const int k = 8 * step + 2 * (lane % 4);
    B b;
#pragma unroll
    for (int i = 0; i < 4; ++i) b.r[i] = round_to_tf32(*tile.at(k + i % 2, column + 8 * (i / 2) + g));
    return b;
  }
  template <class Tile>
  __device__ A load_a_transposed(const Tile& tile, int column, int step, const float* weight) const {
    const int g = lane / 4;
    const int k = 8 * step + 2 * (lane % 4);
    const float2 w = *reinterpret_cast<const float2*>(weight + k);
    A a;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      a.r[i] = round_to_tf32(*tile.at(k + i / 2, column + 8 * (i % 2) + g) * (i / 2 == 0 ? w.x : w.y));
    return a;
  }
  __device__ void multiply(float (&d)[4], const A& a, const B& b, int which) const {
    mma_tf32(d, a.r, b.r[2 * which], b.r[2 * which + 1]);
  }
  template <class Tile>
  __device__ float2 load_pair(const Tile& tile, int row, int column) const {
    return *reinterpret_cast<const float2*>(tile.at(row, column));
  }
  template <class Tile>
  __device__ void store_pair(const Tile& tile, int row, int column, float2 pair) const {
    constexpr std::uint32_t kKept = ~0x1FFFU;  // cleared, so that rounding again changes nothing
    *reinterpret_cast<uint2*>(tile.at(row, column)) =
        make_uint2(round_to_tf32(pair.x) & kKept, round_to_tf32(pair.y) & kKept);
  }
};

/// f32 tensors in f32: multiply-adds of the FMA pipe on the same elements of the result, so that one kernel
/// serves both. A lane reads rows g and g + 8 of A and columns 2t and 2t + 1 of each block of B.
struct F32Products {
  int lane;
  using Element = float;
  static constexpr int kParts = 2;
  static constexpr int kStep = 8;
  static constexpr bool kNarrowRange = false;
  static constexpr bool kSplitSums = true;
  static constexpr bool kExact = true;

  struct A {
    float v[2][kStep];
  };
  struct B {
    float v[2][2][kStep];
  };

  template <class Tile>
  __device__ void load_row(float (&v)[kStep], const Tile& tile, int row, int step) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float4 four = *reinterpret_cast<const float4*>(tile.vector(row, 2 * step + i));
      v[4 * i] = four.x;
      v[4 * i + 1] = four.y;
      v[4 * i + 2] = four.z;
      v[4 * i + 3] = four.w;
    }
  }
  template <class Tile>
  __device__ A load_a(const Tile& tile, int row, int step) const {
    A a;
#pragma unroll
    for (int r = 0; r < 2; ++r) load_row(a.v[r], tile, row + lane / 4 + 8 * r, step);
    return a;
  }
  template <class Tile>
  __device__ A load_masked(const Tile& tile, int row, int step) const {
    return load_a(tile, row, step);
  }
  template <class Tile>
  __device__ B load_b(const Tile& tile, int row, int step) const {
    B b;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      load_row(b.v[i / 2][i % 2], tile, row + 8 * (i / 2) + 2 * (lane % 4) + i % 2, step);
    return b;
  }
  template <class Tile>
  __device__ B load_b_stored(const Tile& tile, int row, int step) const {
    return load_b(tile, row, step);
  }
  template <class Tile>
  __device__ B load_b_transposed(const Tile& tile, int step, int column) const {
    B b;
#pragma unroll
    for (int k = 0; k < kStep; ++k)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float2 pair = load_pair(tile, kStep * step + k, column + 8 * i + 2 * (lane % 4));
        b.v[i][0][k] = pair.x;
        b.v[i][1][k] = pair.y;
      }
    return b;
  }
  template <class Tile>
  __device__ A load_a_transposed(const Tile& tile, int column, int step, const float* weight) const {
    A a;
#pragma unroll
    for (int k = 0; k < kStep; ++k)
#pragma unroll
      for (int r = 0; r < 2; ++r)
        a.v[r][k] = *tile.at(kStep * step + k, column + lane / 4 + 8 * r) * weight[kStep * step + k];
    return a;
  }
  __device__ void multiply(float (&d)[4], const A& a, const B& b, int which) const {
#pragma unroll
    for (int k = 0; k < kStep; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) d[i] += a.v[i / 2][k] * b.v[which][i % 2][k];
  }
  template <class Tile>
  __device__ float2 load_pair(const Tile& tile, int row, int column) const {
    return *reinterpret_cast<const float2*>(tile.at(row, column));
  }
  template <class Tile>
  __device__ void store_pair(const Tile& tile, int row, int column, float2 pair) const {
    *reinterpret_cast<float2*>(tile.at(row, column)) = pair;
  }
};

}  // namespace ssmbench
