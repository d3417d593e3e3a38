#pragma once

// The producer warps of the Hopper gradient kernel: one loads, one stores dx and dz, one writes what a head
// leaves for ddt, dA and dD.

#include "kernels/common/hopper/tma.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/block.cuh"

namespace ssmbench::ssd_hopper_bwd {

/// A head's tile of x, z, dout, dx or dz.
__device__ inline hopper::TileOrigin head_tile(const BlockPlace& place, int head) {
  return {{0, place.first_head + head, place.start, place.b}};
}

/// By one thread.
template <class T>
__device__ void load_inputs(const GradientArgs& args, const SharedMemory<T>& shared) {
  using Layout = typename SharedMemory<T>::Layout;
  const BlockPlace place(args);
  hopper::barrier_arrive_expect(shared.projections_full(), 2 * Layout::kHalves * kTile);
#pragma unroll
  for (int half = 0; half < Layout::kHalves; ++half) {
    const hopper::TileOrigin from{{64 * half, place.group, place.start, place.b}};
    hopper::load_tile(shared.b_tile() + half * kTile, args.B, from, shared.projections_full());
    hopper::load_tile(shared.c_tile() + half * kTile, args.C, from, shared.projections_full());
  }
  const auto ring = shared.inputs();
  typename SharedMemory<T>::Inputs::Position at;
  for (int head = 0; head < place.heads; ++head, at.advance()) {
    ring.wait_empty(at);
    const std::uint32_t full = ring.full(at);
    const SsdInputs& in = args.bwd.in;
    const int skip_bytes = in.skip_per_headdim ? 4 * static_cast<int>(in.headdim) : 0;
    hopper::barrier_arrive_expect(full, Layout::kStageBytes + skip_bytes);
    if (skip_bytes != 0)
      hopper::load_bytes(shared.skip_address(at), in.D + (place.first_head + head) * in.headdim, skip_bytes,
                         full);
    const hopper::TileOrigin from = head_tile(place, head);
    const std::int64_t row = place.row(args, head);
    constexpr int kStateBytes = Layout::kHalves * kTile;
    hopper::load_bytes(shared.steps_address(at), args.workspace.steps + row * 4 * kSteps, kStepsBytes, full);
    if constexpr (T::kScaled)
      hopper::load_bytes(shared.unscales_address(at),
                         args.workspace.unscales + row * args.plan.dstate_tiles * kUnscales, kUnscaleBytes,
                         full);
    hopper::load_tile(shared.dout_tile(at), args.dout, from, full);
    if constexpr (T::kGated) hopper::load_tile(shared.z_tile(at), args.z, from, full);
    hopper::load_bytes(shared.state_tile(at),
                       static_cast<const unsigned char*>(args.workspace.states) + row * kStateBytes,
                       kStateBytes, full);
    hopper::load_tile(shared.x_tile(at), args.x, from, full);
    hopper::load_bytes(shared.dstate_tile(at),
                       static_cast<const unsigned char*>(args.workspace.dstates) + row * kStateBytes,
                       kStateBytes, full);
  }
}

/// By one thread. Shared: SharedMemory, or one like it.
template <class T, class Shared>
__device__ void store_gradients(const GradientArgs& args, const Shared& shared) {
  const BlockPlace place(args);
  const auto ring = shared.inputs();
  typename Shared::Inputs::Position at;
  for (int head = 0; head < place.heads; ++head, at.advance()) {
    ring.wait_done(at);
    hopper::store_tile(args.dx, head_tile(place, head), shared.dout_tile(at));
    if constexpr (T::kGated) hopper::store_tile(args.dz, head_tile(place, head), shared.z_tile(at));
    hopper::wait_stores_read();
    hopper::barrier_arrive(ring.empty(at));
  }
}

/// By one warp; a lane has steps 2·lane and 2·lane + 1, and the same columns of D.
template <class T>
__device__ void write_flows(const GradientArgs& args, const SharedMemory<T>& shared, int lane) {
  const BlockPlace place(args);
  const SsdInputs& in = args.bwd.in;
  const auto ring = shared.flows();
  const int at_step = 2 * lane;
  const auto pair_of = [&](const float* from) { return *reinterpret_cast<const float2*>(from + at_step); };
  typename SharedMemory<T>::Flows::Position at;
  typename SharedMemory<T>::Inputs::Position input_at;
  for (int head = 0; head < place.heads; ++head, at.advance(), input_at.advance()) {
    ring.wait_full(at);
    shared.inputs().wait_full(input_at);
    const HeadFlows& flows = shared.flows_of(at);
    const auto& steps = shared.steps(input_at);
    float2 column = make_float2(0.0F, 0.0F);
    float2 skip = make_float2(0.0F, 0.0F);
    float through = 0.0F;
#pragma unroll
    for (int k = 0; k < kWarpsOfGroup; ++k) {
      const float2 of_rows = pair_of(flows.column[k]);
      const float2 of_steps = pair_of(flows.skip[k]);
      column = make_float2(column.x + of_rows.x, column.y + of_rows.y);
      skip = make_float2(skip.x + of_steps.x, skip.y + of_steps.y);
      through += flows.states[k];
    }
    const float2 delta = pair_of(steps[kStepDelta]);
    const float2 into = pair_of(flows.into);
    const float2 diagonal = pair_of(flows.diagonal);
    float2 out = pair_of(flows.out);
    out = make_float2(out.x - delta.x * column.x, out.y - delta.y * column.y);
    // What flows past all steps ends, for the sums, at the last one.
    if (lane == 31) out.y += steps[kStepEnter][kSteps - 1] * through;
    __syncwarp();
    hopper::barrier_arrive(ring.empty(at));
    warp_arrive(shared.inputs().done(input_at), lane);

    const std::int64_t row = place.row(args, head);
    float* const to = args.workspace.flows + row * kFlowRows * kSteps + at_step;
    *reinterpret_cast<float2*>(to + kFlowOut * kSteps) = out;
    *reinterpret_cast<float2*>(to + kFlowIn * kSteps) = make_float2(delta.x * into.x, delta.y * into.y);
    *reinterpret_cast<float2*>(to + kFlowDirect * kSteps) =
        make_float2(diagonal.x + column.x + into.x, diagonal.y + column.y + into.y);
    if (in.D == nullptr) continue;
    float* const sums = args.workspace.head_sums + row * args.plan.sums + 2;
    if (in.skip_per_headdim) {
      if (at_step < in.headdim) sums[at_step] = skip.x;
      if (at_step + 1 < in.headdim) sums[at_step + 1] = skip.y;
    } else {
      const float sum = sum_lanes<1, 16>(skip.x + skip.y);
      if (lane == 0) sums[0] = sum;
    }
  }
}

}  // namespace ssmbench::ssd_hopper_bwd
