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
      : args_(args), shared_(shared), place_(args), maps_(place_.loaded_maps(args)) {}

  /// In the order in which slots get empty.
  __device__ void run() const {
#pragma unroll 1
    for (int head = 0; head < place_.heads; ++head) {
      load_operands(head);
      load_inputs(head);
      load_phases(head);
    }
  }

 private:
  /// A head's tiles of the chunk, one behind the other. Those of the next head are on their way to the L2 before their
  /// slot is empty.
  __device__ __forceinline__ void load_tiles(int head, std::uint32_t tile, const void* tiles, int bytes,
                                             std::uint32_t full) const {
    const auto* const from = static_cast<const unsigned char*>(tiles) + place_.row(args_, head) * bytes;
    hopper::load_bytes(tile, from, bytes, full);
    if (head + 1 < place_.heads) hopper::prefetch_bytes(from + bytes, bytes);
  }

  __device__ void load_operands(int head) const {
    const auto at = Shared::pair_at(head);
    const std::uint32_t full = shared_.operands().full(at);
    shared_.operands().wait_empty(at);
    hopper::barrier_arrive_expect(full, Layout::kOperandBytes);
    load_tiles(head, shared_.dy_tile(at), args_.work.dy, kTile, full);
    load_tiles(head, shared_.x_tile(at), args_.work.v, kTile, full);
    load_tiles(head, shared_.dstate_tile(at), args_.work.dstates, Layout::kVectors, full);
    load_tiles(head, shared_.state_tile(at), args_.work.states, Layout::kVectors, full);
  }
  __device__ void load_inputs(int head) const {
    const auto at = Shared::pair_at(head);
    const std::uint32_t full = shared_.inputs().full(at);
    shared_.inputs().wait_empty(at);
    hopper::barrier_arrive_expect(full, Layout::kInputBytes);
    load_tiles(head, shared_.steps_address(at), args_.work.steps, ssd::kStepsBytes, full);
    load_tiles(head, shared_.owns_address(at), args_.work.owns, Layout::kOwnsBytes, full);
    // Of the group: all heads but the first find them in the L2.
#pragma unroll
    for (int half = 0; half < Layout::kHalves; ++half) {
      const hopper::TileOrigin from{{64 * half, place_.group, place_.start, place_.b}};
      hopper::load_tile(shared_.q_tile(at) + half * kTile, maps_.C, from, full);
      hopper::load_tile(shared_.k_tile(at) + half * kTile, maps_.B, from, full);
    }
  }
  __device__ void load_phases(int head) const {
    const auto at = Shared::phases_at(head, args_.angle_tiles);
    const int bytes = args_.angle_tiles * Layout::kPhasesBytes;
    const auto* const from =
        reinterpret_cast<const unsigned char*>(args_.work.phases) + place_.row(args_, head) * bytes;
    shared_.phases().wait_empty(at);
    hopper::barrier_arrive_expect(shared_.phases().full(at), bytes);
    hopper::load_bytes(shared_.phases_address(at), from, bytes, shared_.phases().full(at));
    if (head + 1 < place_.heads) hopper::prefetch_bytes(from + bytes, bytes);
  }

  const HopperArgs& args_;
  Shared shared_;
  RankedSequencePlace<T::kRanks> place_;
  const ssd::GradientMaps& maps_;
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

/// By one warp; a lane has rows 2·lane and 2·lane + 1.
template <class T>
__device__ void write_rank_flows(const HopperArgs& args, const RankShared<T>& shared, int lane) {
  using Shared = RankShared<T>;
  const ssd::BlockPlace place(args);
  const auto ring = shared.flows();
  const int at_step = 2 * lane;
  const auto pair_of = [&](const float* from) { return *reinterpret_cast<const float2*>(from + at_step); };
  float* to = args.work.flows + place.row(args, 0) * kFlowRows * kSteps;
#pragma unroll 1
  for (int head = 0; head < place.heads; ++head, to += kFlowRows * kSteps) {
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
    const auto add = [](float2 a, float2 b) { return make_float2(a.x + b.x, a.y + b.y); };
    const float2 column = add(add(pair_of(flows.column[0]), pair_of(flows.column[1])),
                              add(pair_of(flows.column[2]), pair_of(flows.column[3])));
    const float2 delta = pair_of(steps[kStepDelta]);
    const float2 into = pair_of(flows.into);
    const float2 diagonal = pair_of(flows.diagonal);
    float2 out = add(add(pair_of(flows.out[0]), pair_of(flows.out[1])),
                     add(pair_of(flows.out[2]), pair_of(flows.out[3])));
    out = make_float2(out.x - delta.x * column.x, out.y - delta.y * column.y);
    // What flows past all steps ends, for the sums, at the last one.
    if (lane == 31) out.y += steps[kStepEnter][kSteps - 1] * through;
    store_rank_flow<T::kRanks>(to + kFlowOut * kSteps, out, lane);
    store_rank_flow<T::kRanks>(to + kFlowIn * kSteps, make_float2(delta.x * into.x, delta.y * into.y), lane);
    store_rank_flow<T::kRanks>(to + kFlowScale * kSteps, add(column, into), lane);
    store_rank_flow<T::kRanks>(to + kFlowOwn * kSteps, diagonal, lane);
    // Behind the use of all that was loaded: an arrival does not wait for values of shared memory that are on their way,
    // and the next copy has been seen to overtake them.
    hopper::barrier_arrive(ring.empty(at));
    ssd::warp_arrive(shared.inputs().empty(input_at), lane);
  }
}

/// What four warps have of a vector.
__device__ __forceinline__ float4 sum_warps(const float* from, int apart) {
  float4 sum = *reinterpret_cast<const float4*>(from);
#pragma unroll
  for (int k = 1; k < kWarpsOfGroup; ++k) {
    const float4 more = *reinterpret_cast<const float4*>(from + k * apart);
    sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
  }
  return sum;
}

/// By a warp, the sums of dq or of dk by rank, four states a lane: dstate is a multiple of 8, and so are the sums of a
/// row. That of dq writes those of dθ, too.
template <class T>
__device__ void write_rank_biases(const HopperArgs& args, const RankShared<T>& shared, bool is_k, int lane) {
  using Shared = RankShared<T>;
  constexpr int kVectors = T::kStates / 4;  // of a rank
  constexpr int kAtOnce = 32 / kVectors;    // ranks
  const ssd::BlockPlace place(args);
  const auto dstate = static_cast<int>(args.bwd.in.dstate);
  const auto ring = shared.flows();
  const int n = lane % kVectors * 4;
  const int first_rank = lane / kVectors;
  const std::int64_t row = place.row(args, 0);
  float* to = args.work.row_sums + row * args.sums + (is_k ? T::kRanks : 0) * dstate + n;
  float* turns = args.work.turns + row * args.angles;
#pragma unroll 1
  for (int head = 0; head < place.heads; ++head, to += args.sums, turns += args.angles) {
    const auto at = Shared::flows_at(head);
    ring.wait_full(at);
    const auto& flows = shared.flows_of(at);
    const auto& of_warps = flows.biases[is_k][n / kSteps];
#pragma unroll
    for (int i = 0; i < T::kRanks; i += kAtOnce) {
      const int rank = first_rank + i;
      if (rank < T::kRanks && n < dstate)
        *reinterpret_cast<float4*>(to + rank * dstate) =
            sum_warps(of_warps[0] + bias_at(rank, n % kSteps), T::kRanks * kSteps);
    }
    if (!is_k) {
      for (int pair = lane; pair < args.angles; pair += 32) {
        const auto& of_turns = flows.turns[pair / kTilePairs];
        const int i = pair % kTilePairs;
        turns[pair] = (of_turns[0][i] + of_turns[1][i]) + (of_turns[2][i] + of_turns[3][i]);
      }
    }
    hopper::barrier_arrive(ring.empty(at));
  }
}

}  // namespace ssmbench::mamba3_bwd
