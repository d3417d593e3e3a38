#pragma once

// The epilogue of dq and dk: turned back in registers, dθ, sums over steps.

#include "kernels/common/hopper/wgmma.cuh"
#include "kernels/common/io_types.cuh"
#include "kernels/mamba3/hopper_bwd/block.cuh"

namespace ssmbench::mamba3_bwd {

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
  for (int i = 0; i < kOwnVectors; ++i) phases.vectors[i] = __ldg(from + i * ssd::kGroupThreads);
  return phases;
}

/// Turns a thread's pairs of dq or dk back, and gives what they are of dθ. `tile`: the lane's address in that of q
/// or k.
__device__ __forceinline__ void turn_back(float (&gradient)[32], std::uint32_t tile, const OwnPhases& phases,
                                          float (&turned)[kOwnPairs]) {
#pragma unroll
  for (int j = 0; j < kOwnVectors; ++j) {
    std::uint32_t rotated[4];
    load_matrices(rotated, tile ^ j * 32);
    const uint4 of_vector = phases.vectors[j];
    const std::uint32_t own[4] = {of_vector.x, of_vector.y, of_vector.z, of_vector.w};
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
}

/// Adds to the sums over heads, and sums a warp's 16 steps to the 64 columns of `to`.
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

/// A warp's sums of dθ over 16 steps, to the 32 pairs of `to`.
__device__ __forceinline__ void store_turns(const float (&turned)[kOwnPairs], float* to, int lane) {
  float sums[16];
#pragma unroll
  for (int e = 0; e < 8; ++e) sums[e] = turned[2 * e] + turned[2 * e + 1];
  ssd::exchange_sums<4, 16>(sums, lane);
  ssd::exchange_sums<2, 8>(sums, lane);
  ssd::exchange_sums<1, 4>(sums, lane);
  to[ssd::fragment_of_sums(lane) * 4 + lane % 4] = sums[0];
}

}  // namespace ssmbench::mamba3_bwd
