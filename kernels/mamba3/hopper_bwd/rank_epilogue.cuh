#pragma once

// The epilogue of MIMO's dq and dk, 64 states of them, and of y and dV.

#include "kernels/mamba3/hopper_bwd/rank_block.cuh"
#include "kernels/mamba3/hopper_bwd/turn.cuh"

namespace ssmbench::mamba3_bwd {

/// A thread's pairs of V or dy times the weights of its rows. `tile`: the lane's address in theirs.
__device__ __forceinline__ void weigh_tile(std::uint32_t (&to)[16], std::uint32_t tile,
                                           const RowWeights& weights) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    std::uint32_t pairs[4];
    load_matrices(pairs, tile ^ j * 32);
#pragma unroll
    for (int i = 0; i < 4; ++i) to[4 * j + i] = weights.times(pairs[i], i);
  }
  hopper::pin_registers(to);
}

/// Starts to = weighed rows (in fragments) times a tile of 64 states.
__device__ __forceinline__ void start_of_states(float (&to)[32], const std::uint32_t (&weighed)[16],
                                                std::uint32_t states) {
  constexpr auto kAcross = hopper::Major::rows;
  const std::uint64_t of_states = ssd::tile_operand(states);
  hopper::wgmma_fence();
#pragma unroll
  for (int k = 0; k < 4; ++k)
    hopper::wgmma<__nv_bfloat16, kAcross>(to, weighed + 4 * k,
                                          hopper::operand_step<kAcross>(of_states, k, kTile), k > 0);
  hopper::wgmma_commit();
}

/// Starts to += X or Xᵀ times rows of 64 states; what it adds to may still be under way.
template <hopper::Major kSquare>
__device__ __forceinline__ void start_of_steps(float (&to)[32], std::uint32_t square, std::uint32_t rows) {
  constexpr auto kAcross = hopper::Major::rows;
  const std::uint64_t of_square = ssd::tile_operand(square);
  const std::uint64_t of_rows = ssd::tile_operand(rows);
  hopper::wgmma_fence();
#pragma unroll
  for (int k = 0; k < 4; ++k)
    hopper::wgmma<__nv_bfloat16, kSquare, kAcross>(to, hopper::operand_step<kSquare>(of_square, k, kTile),
                                                   hopper::operand_step<kAcross>(of_rows, k, kTile), true);
  hopper::wgmma_commit();
}

/// A warp's sums of the rows of each rank to the 64 columns of `biases`: those of fragments `first` and after it, whose
/// two columns `of` has.
template <int kRanks, int kFragments>
__device__ __forceinline__ void store_biases(const float* of, int first, float* biases, int lane) {
#pragma unroll
  for (int e = 0; e < kFragments; ++e)
    *reinterpret_cast<float2*>(biases + bias_at(lane / 4 % kRanks, 8 * (first + e) + lane % 4 * 2)) =
        make_float2(of[2 * e], of[2 * e + 1]);
}
/// The same of all fragments, from the sums of a lane's rows. Lanes with rows of the same rank share the fragments out.
template <int kRanks>
__device__ __forceinline__ void share_biases(float (&of)[16], float* biases, int lane) {
  ssd::exchange_sums<8, 16>(of, lane);
  int first = (lane >> 4 & 1) * 4;
  if constexpr (kRanks <= 2) {
    ssd::exchange_sums<4, 8>(of, lane);
    first += (lane >> 3 & 1) * 2;
  }
  if constexpr (kRanks == 1) {
    ssd::exchange_sums<2, 4>(of, lane);
    first += lane >> 2 & 1;
  }
  store_biases<kRanks, kRanks>(of, first, biases, lane);
}

/// Adds dq or dk to its sums over heads, turned back if its states turn, and a warp's sums of 16 rows to the 64 columns
/// of `biases`. `turned`: what a thread's pairs are of dθ; `tile` as turn_vector() has it; `phases`: the
/// thread's first vector of an angle tile.
template <int kRanks, bool kTurns>
__device__ __forceinline__ void add_gradient(float (&sums)[32], float (&gradient)[32],
                                             [[maybe_unused]] float (&turned)[kOwnPairs],
                                             [[maybe_unused]] std::uint32_t tile,
                                             [[maybe_unused]] const uint4* phases, float* biases, int lane) {
  float columns[16];
#pragma unroll
  for (int j = 0; j < kOwnVectors; ++j) {
    if constexpr (kTurns) turn_vector(gradient, tile, phases[j * kVectorsApart<kRanks>], turned, j);
#pragma unroll
    for (int e = 2 * j; e < 2 * j + 2; ++e) {
      float* const of = gradient + 4 * e;
      columns[2 * e] = of[0] + of[2];
      columns[2 * e + 1] = of[1] + of[3];
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[4 * e + i] += of[i];
      // Nobody else has rows of the lane's rank; and registers are short.
      if constexpr (kRanks == 8) store_biases<kRanks, 1>(columns + 2 * e, e, biases, lane);
    }
  }
  if constexpr (kRanks < 8) share_biases<kRanks>(columns, biases, lane);
}

/// A warp's sums of 16 rows and 16 columns: `columns` has kOfFragment sums of both of the lane's fragments. To column
/// 8·fragment + 2·(lane % 4) on, by the lanes that visit is called in.
template <int kOfFragment, class Visit>
__device__ __forceinline__ void sum_columns(float (&columns)[16], int lane, const Visit& visit) {
  ssd::exchange_sums<kOfFragment, 16>(columns, lane);
#pragma unroll
  for (int i = 0; i < kOfFragment; ++i) columns[i] = sum_lanes<4, 8>(columns[i]);
  if ((lane & 12) == 0) visit(8 * (lane >> 4 & 1) + lane % 4 * 2);
}

/// dQ or dK of a chunk, 64 states from 64·half on, or the slice's sums of it. `stage`: 16 rows of kStagedRow, the warp's
/// own, in which a row's states get into the order of memory.
template <class T>
__device__ __forceinline__ void write_states(const HopperArgs& args, ssd::Projection which, int half,
                                             const float (&from)[32], const Patch& at, float* stage) {
  using Io = typename T::Io;
  const RankedSequencePlace<T::kRanks> place(args);
  const SsdInputs& in = args.bwd.in;
  const auto states = static_cast<int>(in.dstate);
  const bool is_k = which == ssd::Projection::B;
  auto* const target = static_cast<Io*>(is_k ? args.bwd.dB : args.bwd.dC);
  const std::int64_t all = in.batch * in.seqlen * in.groups * in.dstate;
  float* const sums = args.workspace.projections + (place.slice * 2 + (is_k ? 0 : 1)) * all;
  // The states of a pair are neighbours, or halves apart: then a row has 32 first ones, and 32 second ones behind.
  const int pair_apart = args.halves ? 1 : 2;
  const int second_apart = args.halves ? 32 : 1;
  float* const own = stage + at.lane / 4 * kStagedRow + at.lane % 4 * pair_apart;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    float* const to = own + i % 2 * 8 * kStagedRow + i / 2 * 4 * pair_apart;
    to[0] = from[4 * (i / 2) + 2 * (i % 2)];
    to[second_apart] = from[4 * (i / 2) + 2 * (i % 2) + 1];
  }
  __syncwarp();
  // Of a row, four columns a lane.
  const int column = at.lane % 16 * 4;
  const int in_half = args.halves ? column % 32 : column;
  const int first = half * (args.halves ? 32 : 64) + in_half;
  const int state = first + (args.halves ? column / 32 * (states / 2) : 0);
  if (first >= (args.halves ? states / 2 : states)) return;
#pragma unroll
  for (int row = at.lane / 16; row < 16; row += 2) {
    const int t = at.row + row;
    if (t >= place.steps_valid) break;
    const float4 four = *reinterpret_cast<const float4*>(stage + row * kStagedRow + column);
    const std::int64_t to =
        ((place.b * in.seqlen + place.start + t) * in.groups + place.group) * in.dstate + state;
    if (args.plan.slices > 1)
      *reinterpret_cast<float4*>(sums + to) = four;
    else
      *reinterpret_cast<uint2*>(target + to) =
          make_uint2(pack_pair<Io>(four.x, four.y), pack_pair<Io>(four.z, four.w));
  }
}

/// A warp's 16 rows of y or dV of ranks, rounded, to those of row `index` of the plan in `data`. `stage`: the warp's sums
/// of biases, not yet written. Where they have room for 8 rows, these are turned there into vectors of 16 bytes.
template <class T>
__device__ __forceinline__ void write_output(const HopperArgs& args, void* data, std::int64_t index,
                                             const float (&from)[32], const Patch& at, float* stage) {
  using Io = typename T::Io;
  constexpr bool kStaged = T::kRanks * kSteps * 4 >= 1024;
  constexpr int kApart = kStaged ? 4 : 8;  // rows between those of a thread
  const int lane = at.lane;
  const int row = kStaged ? at.row + lane / 8 : at.row_of(0);
  const auto headdim = static_cast<int>(args.bwd.in.headdim);
  auto* to =
      static_cast<Io*>(data) + (index * kSteps + row) * kMaxHeaddim + (kStaged ? lane % 8 * 8 : lane % 4 * 2);
  if constexpr (kStaged) {
    // Vector v of row r lies at v ^ r.
    const std::uint32_t staged = shared_address(stage) + lane % 8 * 128 + ((lane / 8 ^ lane % 8) << 4);
    const auto* const vectors = reinterpret_cast<const uint4*>(stage);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float* const of = from + 16 * j + 2 * half;
        hopper::store_matrices(staged ^ j * 64, pack_pair<Io>(of[0], of[1]), pack_pair<Io>(of[4], of[5]),
                               pack_pair<Io>(of[8], of[9]), pack_pair<Io>(of[12], of[13]));
      }
      __syncwarp();
#pragma unroll
      for (int i = 0; i < 2; ++i, to += kApart * kMaxHeaddim) {
        const int of_stage = kApart * i + lane / 8;
        const uint4 vector = vectors[of_stage * 8 + (lane % 8 ^ of_stage)];
        if (lane % 8 * 8 < headdim) *reinterpret_cast<uint4*>(to) = vector;
      }
      __syncwarp();
    }
  } else {
#pragma unroll
    for (int i = 0; i < 2; ++i, to += kApart * kMaxHeaddim) {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        if (8 * e >= headdim) break;
        *reinterpret_cast<std::uint32_t*>(to + 8 * e) =
            pack_pair<Io>(from[4 * e + 2 * i], from[4 * e + 2 * i + 1]);
      }
    }
  }
}

}  // namespace ssmbench::mamba3_bwd
