#pragma once

// The epilogue of dq and dk: turned back in registers, dθ, sums over steps.

#include "kernels/common/hopper/wgmma.cuh"
#include "kernels/common/io_types.cuh"
#include "kernels/common/multiply_pairs.cuh"
#include "kernels/mamba3/hopper_bwd/block.cuh"
#include "kernels/mamba3/tensor_bwd/fragments.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/projections.cuh"

namespace ssmbench::mamba3_bwd {

/// Weights of a thread's two rows, for products that are rounded once.
struct RowWeights {
  std::uint32_t high[2], low[2];

  __device__ __forceinline__ explicit RowWeights(const float (&weights)[2]) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      high[row] = pack_pair<__nv_bfloat16>(weights[row], weights[row]);
      const float left = weights[row] - unpack_pair<__nv_bfloat16>(high[row]).x;
      low[row] = pack_pair<__nv_bfloat16>(left, left);
    }
  }
  /// Pair i of a fragment, times its row's weight.
  __device__ __forceinline__ std::uint32_t times(std::uint32_t pair, int i) const {
    return multiply_pairs<__nv_bfloat16>(pair, high[i % 2], low[i % 2]);
  }
};

/// A thread's pairs of V or dy times the weights of its two rows, rounded: an operand of dq or dk.
__device__ __forceinline__ void weigh_rows(std::uint32_t (&to)[16], const std::uint32_t (&from)[16],
                                           const float (&weights)[2]) {
  const RowWeights of(weights);
#pragma unroll
  for (int i = 0; i < 16; ++i) to[i] = of.times(from[i], i);
}

/// Starts dq or dk, 64 states of it: weighed rows (in fragments) times a tile of states, and X times rows of k or q.
template <hopper::Major kSquare>
__device__ __forceinline__ void start_gradient(float (&to)[32], const std::uint32_t (&weighed)[16],
                                               std::uint32_t states, std::uint32_t square,
                                               std::uint32_t rows) {
  using Io = __nv_bfloat16;
  constexpr auto kAcross = hopper::Major::rows;
  const std::uint64_t of_states = ssd::tile_operand(states);
  const std::uint64_t of_square = ssd::tile_operand(square);
  const std::uint64_t of_rows = ssd::tile_operand(rows);
  hopper::wgmma_fence();
#pragma unroll
  for (int k = 0; k < 4; ++k)
    hopper::wgmma<Io, kAcross>(to, weighed + 4 * k, hopper::operand_step<kAcross>(of_states, k, kTile),
                               k > 0);
#pragma unroll
  for (int k = 0; k < 4; ++k)
    hopper::wgmma<Io, kSquare, kAcross>(to, hopper::operand_step<kSquare>(of_square, k, kTile),
                                        hopper::operand_step<kAcross>(of_rows, k, kTile), true);
  hopper::wgmma_commit();
}

/// A pair of Q or K with its bias; `bias`: of a lane's columns of 16 states. Parts 2 and 3 of a fragment are 8 on.
__device__ __forceinline__ float2 plus(std::uint32_t pair, const float4& bias, int part) {
  const float2 of = unpack_pair<__nv_bfloat16>(pair);
  return part < 2 ? make_float2(of.x + bias.x, of.y + bias.y) : make_float2(of.x + bias.z, of.y + bias.w);
}
__device__ __forceinline__ float2 turn_pair(float2 x, Turn turn) {
  return make_float2(x.x * turn.cosine - x.y * turn.sine, x.x * turn.sine + x.y * turn.cosine);
}

/// MIMO's phases of a thread's pairs, on their way while products are.
struct OwnPhases {
  uint4 vectors[kOwnVectors];
};

/// SISO's: a thread's part of a PhaseTile, on its way while products are.
struct ThreadPhases {
  uint4 of_steps[2];
  uint4 starts[2];

  /// Of the pairs of vector j, as angle tiles have them.
  __device__ __forceinline__ uint4 vector(int j) const {
    const uint4& words = of_steps[j / 2];
    const uint2 steps = j % 2 == 0 ? make_uint2(words.x, words.y) : make_uint2(words.z, words.w);
    const uint4& of_pairs = starts[j / 2];
    const uint2 start = j % 2 == 0 ? make_uint2(of_pairs.x, of_pairs.y) : make_uint2(of_pairs.z, of_pairs.w);
    return make_uint4(start.x + (steps.x << 16), start.x + (steps.x & 0xFFFF0000U), start.y + (steps.y << 16),
                      start.y + (steps.y & 0xFFFF0000U));
  }
};
__device__ __forceinline__ ThreadPhases load_thread_phases(const PhaseTile* tile, int thread) {
  const auto* const of_steps = reinterpret_cast<const uint4*>(tile->of_steps) + thread;
  const auto* const starts = reinterpret_cast<const uint4*>(tile->starts) + thread % 4 * 2;
  return {{__ldg(of_steps), __ldg(of_steps + ssd::kGroupThreads)}, {__ldg(starts), __ldg(starts + 1)}};
}

/// The phase tiles of a row.
__device__ __forceinline__ const PhaseTile* phases_of(const HopperArgs& args, std::int64_t row) {
  return reinterpret_cast<const PhaseTile*>(args.work.phases) + row * args.angle_tiles;
}

/// Biases of a lane's columns of 16 states, from those of the states.
__device__ __forceinline__ float4 lane_biases(const float* of_states, int lane) {
  const auto* const from = reinterpret_cast<const float2*>(of_states) + lane % 4;
  const float2 first = from[0];
  const float2 second = from[4];
  return make_float4(first.x, first.y, second.x, second.y);
}
/// A warp's 16 rows of tiles of 64 states of Q or K, in place: biases are added, states turned. `biases`: of the
/// states; `phases` are lost. A loop, since the code of all roles has to fit in the instruction cache.
template <int kTiles>
__device__ __forceinline__ void turn_rows(const std::uint32_t (&tiles)[kTiles],
                                          const float* const (&biases)[kTiles], ThreadPhases& phases,
                                          int thread) {
  const std::uint32_t fragment = hopper::fragment_offset(thread / 32, thread % 32);
#pragma unroll 1
  for (int columns = 0; columns < 64; columns += 32) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      std::uint32_t x[kTiles][4];
      float4 of_lane[kTiles];
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        load_matrices(x[tile], (tiles[tile] + fragment) ^ 2 * columns ^ j * 32);
        of_lane[tile] = lane_biases(biases[tile] + columns + 16 * j, thread);
      }
      const uint4 vector = phases.vector(j);
      const std::uint32_t own[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Turn turn = turn_of(own[i]);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          const float2 pair = turn_pair(plus(x[tile][i], of_lane[tile], i), turn);
          x[tile][i] = pack_pair<__nv_bfloat16>(pair.x, pair.y);
        }
      }
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile)
        hopper::store_matrices((tiles[tile] + fragment) ^ 2 * columns ^ j * 32, x[tile][0], x[tile][1],
                               x[tile][2], x[tile][3]);
    }
    phases.of_steps[0] = phases.of_steps[1];
    phases.starts[0] = phases.starts[1];
  }
}
/// The same of states that do not turn.
template <int kTiles>
__device__ __forceinline__ void shift_rows(const std::uint32_t (&tiles)[kTiles],
                                           const float* const (&biases)[kTiles], int thread) {
  const std::uint32_t fragment = hopper::fragment_offset(thread / 32, thread % 32);
#pragma unroll 1
  for (int columns = 0; columns < 64; columns += 32) {
    std::uint32_t x[kTiles][2][4];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int j = 0; j < 2; ++j) load_matrices(x[tile][j], (tiles[tile] + fragment) ^ 2 * columns ^ j * 32);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float4 bias = lane_biases(biases[tile] + columns + 16 * j, thread);
        std::uint32_t(&of)[4] = x[tile][j];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 pair = plus(of[i], bias, i);
          of[i] = pack_pair<__nv_bfloat16>(pair.x, pair.y);
        }
        hopper::store_matrices((tiles[tile] + fragment) ^ 2 * columns ^ j * 32, of[0], of[1], of[2], of[3]);
      }
  }
}

/// Turns vector j of a thread's pairs of dq or dk back, and gives what they are of dθ. `tile`: the lane's address in
/// that of q or k.
__device__ __forceinline__ void turn_vector(float (&gradient)[32], std::uint32_t tile, const uint4& phases,
                                            float (&turned)[kOwnPairs], int j) {
  std::uint32_t rotated[4];
  load_matrices(rotated, tile ^ j * 32);
  const std::uint32_t own[4] = {phases.x, phases.y, phases.z, phases.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float& first = gradient[8 * j + 2 * i];
    float& second = gradient[8 * j + 2 * i + 1];
    const float2 of = unpack_pair<__nv_bfloat16>(rotated[i]);
    turned[4 * j + i] = of.x * second - of.y * first;
    const Turn turn = turn_of(own[i]);
    const float back = first * turn.cosine + second * turn.sine;
    second = second * turn.cosine - first * turn.sine;
    first = back;
  }
}
__device__ __forceinline__ void turn_back(float (&gradient)[32], std::uint32_t tile,
                                          const ThreadPhases& phases, float (&turned)[kOwnPairs]) {
#pragma unroll
  for (int j = 0; j < kOwnVectors; ++j) turn_vector(gradient, tile, phases.vector(j), turned, j);
}

/// Adds to the sums over heads, and sums a warp's 16 rows to the 64 columns of `to`.
__device__ __forceinline__ void add_gradient(float (&sums)[32], const float (&gradient)[32], float* to,
                                             int lane) {
  float columns[16];
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    columns[2 * e] = gradient[4 * e] + gradient[4 * e + 2];
    columns[2 * e + 1] = gradient[4 * e + 1] + gradient[4 * e + 3];
  }
#pragma unroll
  for (int i = 0; i < 32; ++i) sums[i] += gradient[i];
  ssd::store_column_sums(columns, to, lane);
}

/// A warp's sums of 16 rows: `of` has a lane's sums in each of the 8 fragments. That of fragment_of_sums().
__device__ __forceinline__ float sum_fragments(float (&of)[16], int lane) {
  ssd::exchange_sums<4, 16>(of, lane);
  ssd::exchange_sums<2, 8>(of, lane);
  ssd::exchange_sums<1, 4>(of, lane);
  return of[0];
}

/// A warp's sums of dθ over the steps of 16 rows, to the 32 pairs of `to`. With ranks `turned` has a lane's share
/// (share_steps).
template <int kRanks>
__device__ __forceinline__ void store_turns(const float (&turned)[kOwnPairs], float* to, int lane) {
  if constexpr (kRanks == 1) {
    float sums[16];
#pragma unroll
    for (int e = 0; e < 8; ++e) sums[e] = turned[2 * e] + turned[2 * e + 1];
    to[ssd::fragment_of_sums(lane) * 4 + lane % 4] = sum_fragments(sums, lane);
  } else {
    constexpr int kFragments = kOwnPairs / 2 / kRanks;
#pragma unroll
    for (int e = 0; e < kFragments; ++e) {
      const float sum = sum_rank<kRanks>(turned[2 * e] + turned[2 * e + 1]);
      if (lane / 4 < kRanks) to[(lane / 4 * kFragments + e) * 4 + lane % 4] = sum;
    }
  }
}

/// Sums of a thread's values over the rows of a step, of which each lane of the step keeps a share: 16 / kRanks of
/// them, from (rank of the lane's row) · (16 / kRanks) on.
template <int kRanks>
__device__ __forceinline__ void share_steps(float (&of)[kOwnPairs], int lane) {
  if constexpr (kRanks == 2) {
    ssd::exchange_sums<8, 4>(of, lane);
  } else if constexpr (kRanks == 4) {
    ssd::exchange_sums<8, 8>(of, lane);
    ssd::exchange_sums<4, 4>(of, lane);
  } else if constexpr (kRanks == 8) {
    ssd::exchange_sums<8, 16>(of, lane);
    ssd::exchange_sums<4, 8>(of, lane);
    ssd::exchange_sums<2, 4>(of, lane);
  }
}

}  // namespace ssmbench::mamba3_bwd
