#pragma once

// The epilogue of dq and dk: turned back in registers, dθ, sums over steps.

#include "kernels/common/hopper/wgmma.cuh"
#include "kernels/common/io_types.cuh"
#include "kernels/mamba3/hopper_bwd/block.cuh"
#include "kernels/mamba3/tensor_bwd/fragments.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/projections.cuh"

namespace ssmbench::mamba3_bwd {

/// Phases of a thread's pairs, on their way while products are.
struct OwnPhases {
  uint4 vectors[kOwnVectors];
};
template <int kRanks>
__device__ __forceinline__ OwnPhases load_own_phases(const HopperArgs& args, std::int64_t row, int tile,
                                                     int thread) {
  const auto* const from = reinterpret_cast<const uint4*>(args.work.phases + (row * args.angle_tiles + tile) *
                                                                                 (kAngleTile / kRanks)) +
                           own_vector<kRanks>(thread);
  OwnPhases phases;
#pragma unroll
  for (int i = 0; i < kOwnVectors; ++i) phases.vectors[i] = __ldg(from + i * kVectorsApart<kRanks>);
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

/// Adds to the sums over heads, and sums a warp's 16 rows to the 64 columns of `to`, for each rank: they are `pitch`
/// apart.
template <int kRanks>
__device__ __forceinline__ void add_gradient(float (&sums)[32], const float (&gradient)[32], float* to,
                                             int pitch, int lane) {
  float columns[16];
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    columns[2 * e] = gradient[4 * e] + gradient[4 * e + 2];
    columns[2 * e + 1] = gradient[4 * e + 1] + gradient[4 * e + 3];
  }
#pragma unroll
  for (int i = 0; i < 32; ++i) sums[i] += gradient[i];
  if constexpr (kRanks == 1) {
    ssd::store_column_sums(columns, to, lane);
  } else {
    to += lane / 4 * pitch + lane % 4 * 2;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const float2 sum = make_float2(sum_rank<kRanks>(columns[2 * e]), sum_rank<kRanks>(columns[2 * e + 1]));
      if (lane / 4 < kRanks) *reinterpret_cast<float2*>(to + 8 * e) = sum;
    }
  }
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

/// dQ or dK of a chunk, of pairs that are halves apart. A lane and its neighbour have two pairs each of a row, and
/// make a word of their first states and one of their second.
template <int kHalves>
__device__ __forceinline__ void write_halves(const HopperArgs& args, ssd::Projection which,
                                             const ssd::ProjectionSums<kHalves>& from, const Patch& at) {
  const ssd::BlockPlace place(args);
  const SsdInputs& in = args.bwd.in;
  const auto states = static_cast<int>(in.dstate);
  const bool is_k = which == ssd::Projection::B;
  auto* const target = static_cast<__nv_bfloat16*>(is_k ? args.bwd.dB : args.bwd.dC);
  const std::int64_t all = in.batch * in.seqlen * in.groups * in.dstate;
  float* const sums = args.workspace.projections + (place.slice * 2 + (is_k ? 0 : 1)) * all;
  const bool is_odd = at.lane % 2 != 0;
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const int t = at.row_of(2 * row);
    const std::int64_t start =
        ((place.b * in.seqlen + place.start + t) * in.groups + place.group) * in.dstate + at.lane % 4;
#pragma unroll
    for (int e = 0; e < 8 * kHalves; ++e) {
      if (8 * e >= states) break;
      const float first = from[e / 8][e % 8 * 4 + 2 * row];
      const float second = from[e / 8][e % 8 * 4 + 2 * row + 1];
      if (args.plan.slices > 1) {
        if (t >= place.steps_valid) continue;
        sums[start + 4 * e] = first;
        sums[start + states / 2 + 4 * e] = second;
        continue;
      }
      const float other = __shfl_xor_sync(0xFFFFFFFFU, is_odd ? first : second, 1);
      if (t >= place.steps_valid) continue;
      *reinterpret_cast<std::uint32_t*>(target + start + 4 * e + (is_odd ? states / 2 - 1 : 0)) =
          is_odd ? pack_pair<__nv_bfloat16>(other, second) : pack_pair<__nv_bfloat16>(first, other);
    }
  }
}
template <class T, int kHalves = T::kStates / 64>
__device__ __forceinline__ void write_vectors(const HopperArgs& args, ssd::Projection which,
                                              const ssd::ProjectionSums<kHalves>& from, const Patch& at) {
  if constexpr (T::kIsMimo) {
    if (args.halves) return write_halves<kHalves>(args, which, from, at);
  }
  ssd::write_projection<__nv_bfloat16, kHalves>(args, which, from, at);
}

/// A warp's rows of y or dV of ranks, to those of a head in f32.
__device__ __forceinline__ void write_ranks(const HopperArgs& args, float* data, const float (&from)[32],
                                            int head, const Patch& at) {
  const ssd::BlockPlace place(args);
  const SsdInputs& in = args.bwd.in;
  const auto headdim = static_cast<int>(in.headdim);
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const int t = at.row_of(2 * row);
    if (t >= place.steps_valid) continue;
    float* const to =
        data + ((place.b * in.seqlen + place.start + t) * in.nheads + place.first_head + head) * headdim +
        at.lane % 4 * 2;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      if (8 * e >= headdim) break;
      *reinterpret_cast<float2*>(to + 8 * e) = make_float2(from[4 * e + 2 * row], from[4 * e + 2 * row + 1]);
    }
  }
}

}  // namespace ssmbench::mamba3_bwd
