#pragma once

// The producer warps of MIMO's gradient kernel: one loads, one writes what a head leaves for sums over time.

#include "kernels/common/hopper/tma.cuh"
#include "kernels/mamba3/hopper_bwd/product_of_states.cuh"
#include "kernels/mamba3/hopper_bwd/rank_block.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/producer.cuh"

namespace ssmbench::mamba3_bwd {

/// What one thread loads.
template <class T>
class RankLoader {
  using Shared = RankShared<T>;
  using Layout = RankLayout<T>;

 public:
  __device__ RankLoader(const HopperArgs& args, const Shared& shared)
      : args_(args), shared_(shared), place_(args) {}

  /// In the order in which slots get empty.
  __device__ void run() const {
    load_operands(0);
    load_inputs(0);
#pragma unroll 1
    for (int head = 0; head < place_.heads; ++head) {
      const bool is_followed = head + 1 < place_.heads;
      if (is_followed) load_operands(head + 1);
      load_phases(head);
      if (is_followed) load_inputs(head + 1);
    }
  }

 private:
  /// Tiles of 64 columns. Those of the next head are on their way to the L2 before their slot is empty.
  __device__ __forceinline__ void load_tiles(int head, std::uint32_t tile, int tiles, const CUtensorMap& map,
                                             std::uint32_t full) const {
    const hopper::TileOrigin from = ssd::head_tile(place_, head);
    for (int i = 0; i < tiles; ++i) {
      const hopper::TileOrigin at{{64 * i, from.at[1], from.at[2], from.at[3]}};
      hopper::load_tile(tile + i * kTile, map, at, full);
      if (head + 1 < place_.heads) prefetch_tile(map, {{at.at[0], at.at[1] + 1, at.at[2], at.at[3]}});
    }
  }
  __device__ __forceinline__ void load_states(int head, std::uint32_t tile, const void* states,
                                              std::uint32_t full) const {
    const auto* const all = static_cast<const unsigned char*>(states);
    hopper::load_bytes(tile, all + place_.row(args_, head) * Layout::kVectors, Layout::kVectors, full);
    if (head + 1 < place_.heads)
      hopper::prefetch_bytes(all + place_.row(args_, head + 1) * Layout::kVectors, Layout::kVectors);
  }

  __device__ void load_operands(int head) const {
    const auto at = Shared::pair_at(head);
    const std::uint32_t full = shared_.operands().full(at);
    shared_.operands().wait_empty(at);
    hopper::barrier_arrive_expect(full, Layout::kOperandBytes);
    load_tiles(head, shared_.dy_tile(at), 1, args_.dout, full);
    load_tiles(head, shared_.x_tile(at), 1, args_.x, full);
    load_states(head, shared_.dstate_tile(at), args_.work.dstates, full);
    load_states(head, shared_.state_tile(at), args_.work.states, full);
  }
  __device__ void load_inputs(int head) const {
    const auto at = Shared::pair_at(head);
    const std::uint32_t full = shared_.inputs().full(at);
    const std::int64_t row = place_.row(args_, head);
    shared_.inputs().wait_empty(at);
    hopper::barrier_arrive_expect(full, Layout::kInputBytes);
    hopper::load_bytes(shared_.steps_address(at), args_.work.steps + row * kStepFloats * kSteps,
                       ssd::kStepsBytes, full);
    hopper::load_bytes(shared_.owns_address(at), args_.work.owns + row * kSteps, Layout::kOwnsBytes, full);
    load_tiles(head, shared_.q_tile(at), Layout::kHalves, args_.C, full);
    load_tiles(head, shared_.k_tile(at), Layout::kHalves, args_.B, full);
  }
  __device__ void load_phases(int head) const {
    const auto at = Shared::one_at(head);
    const int bytes = args_.angle_tiles * Layout::kPhasesBytes;
    const auto* const from =
        reinterpret_cast<const unsigned char*>(args_.work.phases) + place_.row(args_, head) * bytes;
    shared_.phases().wait_empty(at);
    hopper::barrier_arrive_expect(shared_.phases().full(at), bytes);
    hopper::load_bytes(shared_.phases_address(), from, bytes, shared_.phases().full(at));
  }
  __device__ static void prefetch_tile(const CUtensorMap& map, const hopper::TileOrigin& from) {
    asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global [%0, {%1, %2, %3, %4}];\n" ::"l"(&map),
                 "r"(from.at[0]), "r"(from.at[1]), "r"(from.at[2]), "r"(from.at[3])
                 : "memory");
  }

  const HopperArgs& args_;
  Shared shared_;
  ssd::BlockPlace place_;
};

/// Sums of rows 2·lane and 2·lane + 1 over the rows of a step, to a lane of each step.
template <int kRanks>
__device__ __forceinline__ void store_rank_flow(float* to, float2 of_rows, int lane) {
  if constexpr (kRanks == 1) {
    *reinterpret_cast<float2*>(to + 2 * lane) = of_rows;
  } else {
    float sum = of_rows.x + of_rows.y;
#pragma unroll
    for (int bit = 1; 2 * bit < kRanks; bit *= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, bit);
    if (lane % (kRanks / 2) == 0) to[lane / (kRanks / 2)] = sum;
  }
}

/// Sums of dq and dk, by rank, four states a lane: dstate is a multiple of 8, and so are the sums of a row.
template <class T>
__device__ __forceinline__ void write_rank_biases(float* to, const RankFlows<T::kRanks>& flows, int dstate,
                                                  int lane) {
  constexpr int kVectors = T::kStates / 4;  // of a rank
#pragma unroll 1                            // registers are short
  for (int i = lane; i < 2 * T::kRanks * kVectors; i += 32) {
    const int n = 4 * (i % kVectors);
    const int row = i / kVectors;  // [dq, dk][rank]
    const auto& of_warps = flows.biases[row / T::kRanks][n / kSteps];
    const int from = bias_at(row % T::kRanks, n % kSteps);
    float4 sum = *reinterpret_cast<const float4*>(of_warps[0] + from);
#pragma unroll
    for (int k = 1; k < kWarpsOfGroup; ++k) {
      const float4 more = *reinterpret_cast<const float4*>(of_warps[k] + from);
      sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
    }
    if (n < dstate) *reinterpret_cast<float4*>(to + row * dstate + n) = sum;
  }
}

/// By one warp; a lane has rows 2·lane and 2·lane + 1.
template <class T>
__device__ void write_rank_flows(const HopperArgs& args, const RankShared<T>& shared, int lane) {
  using Shared = RankShared<T>;
  const ssd::BlockPlace place(args);
  const auto dstate = static_cast<int>(args.bwd.in.dstate);
  const auto ring = shared.flows();
  const int at_step = 2 * lane;
  const auto pair_of = [&](const float* from) { return *reinterpret_cast<const float2*>(from + at_step); };
#pragma unroll 1
  for (int head = 0; head < place.heads; ++head) {
    const auto input_at = Shared::pair_at(head);
    const auto at = Shared::flows_at(head);
    shared.operands().wait_full(input_at);
    const float through =
        product_of_states<T::kStates>(shared.state_tile(input_at), shared.dstate_tile(input_at), lane);
    ssd::warp_arrive(shared.operands().empty(input_at), lane);
    shared.inputs().wait_full(input_at);
    ring.wait_full(at);
    const auto& flows = shared.flows_of(at);
    const auto& steps = shared.steps(input_at);
    const std::int64_t row = place.row(args, head);
    const auto add = [](float2 a, float2 b) { return make_float2(a.x + b.x, a.y + b.y); };
    const float2 column = add(add(pair_of(flows.column[0]), pair_of(flows.column[1])),
                              add(pair_of(flows.column[2]), pair_of(flows.column[3])));
    const float2 delta = pair_of(steps[kStepDelta]);
    const float2 into = pair_of(flows.into);
    const float2 diagonal = pair_of(flows.diagonal);
    float2 out = add(pair_of(flows.out[0]), pair_of(flows.out[1]));
    out = make_float2(out.x - delta.x * column.x, out.y - delta.y * column.y);
    // What flows past all steps ends, for the sums, at the last one.
    if (lane == 31) out.y += steps[kStepEnter][kSteps - 1] * through;
    float* const to = args.work.flows + row * kFlowRows * kSteps;
    store_rank_flow<T::kRanks>(to + kFlowOut * kSteps, out, lane);
    store_rank_flow<T::kRanks>(to + kFlowIn * kSteps, make_float2(delta.x * into.x, delta.y * into.y), lane);
    store_rank_flow<T::kRanks>(to + kFlowScale * kSteps, add(column, into), lane);
    store_rank_flow<T::kRanks>(to + kFlowOwn * kSteps, diagonal, lane);
    write_rank_biases<T>(args.work.row_sums + row * args.sums, flows, dstate, lane);
#pragma unroll 1
    for (int pair = lane; pair < args.angles; pair += 32) {
      const auto& of_warps = flows.turns[pair / kTilePairs];
      const int i = pair % kTilePairs;
      args.work.turns[row * args.angles + pair] =
          (of_warps[0][i] + of_warps[1][i]) + (of_warps[2][i] + of_warps[3][i]);
    }
    __syncwarp();
    hopper::barrier_arrive(ring.empty(at));
    ssd::warp_arrive(shared.inputs().empty(input_at), lane);
  }
}

}  // namespace ssmbench::mamba3_bwd
