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

/// Phases of a thread's pairs, on their way while products are.
struct OwnPhases {
  uint4 vectors[kOwnVectors];
};
__device__ __forceinline__ OwnPhases load_own_phases(const HopperArgs& args, std::int64_t row, int tile,
                                                     int thread) {
  const auto* const from =
      reinterpret_cast<const uint4*>(args.work.phases + (row * args.angle_tiles + tile) * kAngleTile) +
      thread;
  OwnPhases phases;
#pragma unroll
  for (int i = 0; i < kOwnVectors; ++i) phases.vectors[i] = __ldg(from + i * kVectorsApart<1>);
  return phases;
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
__device__ __forceinline__ void turn_back(float (&gradient)[32], std::uint32_t tile, const OwnPhases& phases,
                                          float (&turned)[kOwnPairs]) {
#pragma unroll
  for (int j = 0; j < kOwnVectors; ++j) turn_vector(gradient, tile, phases.vectors[j], turned, j);
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
