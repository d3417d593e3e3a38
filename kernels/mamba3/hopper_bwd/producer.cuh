#pragma once

// The producer warps of the Hopper gradient kernel: one loads, one stores dV and dZ (SSD's), one writes what a head
// leaves for sums over time.

#include "kernels/mamba3/hopper_bwd/block.cuh"
#include "kernels/mamba3/hopper_bwd/product_of_states.cuh"
#include "kernels/mamba3/hopper_bwd/turn.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/producer.cuh"

namespace ssmbench::mamba3_bwd {

/// Q and K of the block's group, for a head, with the head's biases; its phases to the L2, for threads have no room
/// to load them early.
template <class T>
__device__ __forceinline__ void load_vectors(const HopperArgs& args, const HopperShared<T>& shared,
                                             const SequencePlace& place, const ssd::GradientMaps& maps,
                                             int head, typename HopperShared<T>::Inputs::Position at) {
  using Layout = HopperLayout<T>;
  const auto ring = shared.vectors();
  ring.wait_empty(at);
  if (head > 0) {      // whose biases are where those of this head go
    auto before = at;  // two slots: the one before is the other one
    before.slot ^= 1;
    before.parity ^= at.slot ^ 1;
    ring.wait_done(before);
  }
  const int bytes = static_cast<int>(args.bwd.in.dstate) * 4;
  const std::uint32_t full = ring.full(at);
  hopper::barrier_arrive_expect(full, 2 * Layout::kVectors + 2 * bytes);
  const std::int64_t biases = std::int64_t{place.first_head + head} * args.bwd.in.dstate;
  hopper::load_bytes(shared.biases_address(), args.q_bias + biases, bytes, full);
  hopper::load_bytes(shared.biases_address() + T::kStates * 4, args.k_bias + biases, bytes, full);
#pragma unroll
  for (int half = 0; half < Layout::kHalves; ++half) {
    const hopper::TileOrigin from{{64 * half, place.group, place.start, place.b}};
    hopper::load_tile(shared.q_tile(at) + half * kTile, maps.C, from, full);
    hopper::load_tile(shared.k_tile(at) + half * kTile, maps.B, from, full);
  }
}

__device__ __forceinline__ void prefetch_phases(const HopperArgs& args, const ssd::BlockPlace& place,
                                                int head) {
  if (head < place.heads)
    hopper::prefetch_bytes(phases_of(args, place.row(args, head)),
                           args.angle_tiles * static_cast<int>(sizeof(PhaseTile)));
}

/// By one thread.
template <class T>
__device__ void load_heads(const HopperArgs& args, const HopperShared<T>& shared) {
  using Layout = HopperLayout<T>;
  const SequencePlace place(args);
  const ssd::GradientMaps& maps = place.loaded_maps(args);
  const auto ring = shared.inputs();
  typename HopperShared<T>::Inputs::Position at;
  prefetch_phases(args, place, 0);
  prefetch_phases(args, place, 1);
  for (int head = 0; head < place.heads; ++head, at.advance()) {
    load_vectors(args, shared, place, maps, head, at);
    prefetch_phases(args, place, head + 2);  // whose q and k are made while this head's products run
    ring.wait_empty(at);
    const std::uint32_t full = ring.full(at);
    hopper::barrier_arrive_expect(full, Layout::kStageBytes);
    const hopper::TileOrigin from = ssd::head_tile(place, head);
    const std::int64_t row = place.row(args, head);
    const auto load_states = [&](std::uint32_t tile, const void* states) {
      hopper::load_bytes(tile, static_cast<const unsigned char*>(states) + row * Layout::kVectors,
                         Layout::kVectors, full);
    };
    hopper::load_bytes(shared.steps_address(at), args.work.steps + row * kStepFloats * kSteps,
                       ssd::kStepsBytes, full);
    hopper::load_bytes(shared.owns_address(at), args.work.owns + row * kSteps, Layout::kOwnsBytes, full);
    hopper::load_tile(shared.dout_tile(at), maps.dout, from, full);
    if constexpr (T::kGated) hopper::load_tile(shared.z_tile(at), maps.z, from, full);
    hopper::load_tile(shared.x_tile(at), maps.x, from, full);
    load_states(shared.dstate_tile(at), args.work.dstates);
    load_states(shared.state_tile(at), args.work.states);
    if (head + 1 < place.heads) {  // whose slot is not empty yet
      const std::int64_t next = place.row(args, head + 1) * Layout::kVectors;
      hopper::prefetch_bytes(static_cast<const unsigned char*>(args.work.dstates) + next, Layout::kVectors);
      hopper::prefetch_bytes(static_cast<const unsigned char*>(args.work.states) + next, Layout::kVectors);
    }
  }
}

/// By two warps, which take turns; a lane has rows 2·lane and 2·lane + 1. `first`: the warp's first head. (One warp alone
/// would be at work all the time, and hold the slots of the inputs.)
template <class T>
__device__ void write_flows(const HopperArgs& args, const HopperShared<T>& shared, int lane, int first) {
  const ssd::BlockPlace place(args);
  const auto dstate = static_cast<int>(args.bwd.in.dstate);
  const auto ring = shared.flows();
  const int at_step = 2 * lane;
  const auto pair_of = [&](const float* from) { return *reinterpret_cast<const float2*>(from + at_step); };
  typename HopperShared<T>::Flows::Position at;
  typename HopperShared<T>::Inputs::Position input_at;
  // Both rings have two slots: each warp has one of them.
  static_assert(HopperLayout<T>::kStages == 2 && HopperLayout<T>::kDepth == 2);
  at.slot = input_at.slot = static_cast<std::uint32_t>(first);
  for (int head = first; head < place.heads; head += 2, at.parity ^= 1, input_at.parity ^= 1) {
    shared.inputs().wait_full(input_at);
    const float through =
        product_of_states<T::kStates>(shared.state_tile(input_at), shared.dstate_tile(input_at), lane);
    ring.wait_full(at);
    const auto& flows = shared.flows_of(at);
    const auto& steps = shared.steps(input_at);
    const std::int64_t row = place.row(args, head);
    float2 column = make_float2(0.0F, 0.0F);
#pragma unroll
    for (int k = 0; k < kWarpsOfGroup; ++k) {
      const float2 of_rows = pair_of(flows.column[k]);
      column = make_float2(column.x + of_rows.x, column.y + of_rows.y);
    }
    const float2 delta = pair_of(steps[kStepDelta]);
    const float2 into = pair_of(flows.into);
    const float2 diagonal = pair_of(flows.diagonal);
    float2 out = pair_of(flows.out);
    out = make_float2(out.x - delta.x * column.x, out.y - delta.y * column.y);
    // What flows past all steps ends, for the sums, at the last one.
    if (lane == 31) out.y += steps[kStepEnter][kSteps - 1] * through;
    const auto store_flow = [&](int flow, float2 of_rows) {
      *reinterpret_cast<float2*>(args.work.flows + (row * kFlowRows + flow) * kSteps + at_step) = of_rows;
    };
    store_flow(kFlowOut, out);
    store_flow(kFlowIn, make_float2(delta.x * into.x, delta.y * into.y));
    store_flow(kFlowScale, make_float2(column.x + into.x, column.y + into.y));
    store_flow(kFlowOwn, diagonal);

    const auto sum_of = [&](const auto& of_warps, int i) {
      return (of_warps[0][i] + of_warps[1][i]) + (of_warps[2][i] + of_warps[3][i]);
    };
    float* const sums = args.work.row_sums + row * args.sums;
#pragma unroll 1
    for (int n = lane; n < dstate; n += 32) {
      sums[n] = sum_of(flows.biases[0], n);
      sums[dstate + n] = sum_of(flows.biases[1], n);
    }
    const float2 skipped = pair_of(flows.skipped);
    const float skip = sum_lanes<1, 16>(skipped.x + skipped.y);
    if (lane == 0) sums[2 * dstate] = skip;
#pragma unroll 1
    for (int pair = lane; pair < args.angles; pair += 32)
      args.work.turns[row * args.angles + pair] = sum_of(flows.turns, pair);
    __syncwarp();
    hopper::barrier_arrive(ring.empty(at));
    ssd::warp_arrive(shared.inputs().done(input_at), lane);
  }
}

}  // namespace ssmbench::mamba3_bwd
