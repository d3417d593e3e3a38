#pragma once

// The producer warps of the gradient kernel for f32 tensors: one loads, one writes what a head leaves for
// ddt, dA and dD.

#include "kernels/common/hopper/tma.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/producer.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/tf32/block.cuh"

namespace ssmbench::ssd_hopper_bwd::tf32 {

/// Two tiles side by side of a head.
__device__ __forceinline__ void load_square(std::uint32_t to, const CUtensorMap& map, hopper::TileOrigin from,
                                            std::uint32_t full) {
#pragma unroll
  for (int half = 0; half < 2; ++half, from.at[0] += kTileColumns)
    hopper::load_tile(to + half * kTile, map, from, full);
}
__device__ __forceinline__ void store_square(const CUtensorMap& map, hopper::TileOrigin to,
                                             std::uint32_t from) {
#pragma unroll
  for (int half = 0; half < 2; ++half, to.at[0] += kTileColumns)
    hopper::store_tile(map, to, from + half * kTile);
}

/// By one thread.
template <bool kGated>
__device__ void load_heads(const GradientArgs& args, const SharedMemory& shared) {
  const BlockPlace place(args);
  hopper::barrier_arrive_expect(shared.projections_full(), 2 * kProjection);
#pragma unroll 1
  for (int tile = 0; tile < kProjection / kTile; ++tile) {
    const hopper::TileOrigin from{{kTileColumns * tile, place.group, place.start, place.b}};
    hopper::load_tile(shared.tile(Layout::kB) + tile * kTile, args.B, from, shared.projections_full());
    hopper::load_tile(shared.tile(Layout::kC) + tile * kTile, args.C, from, shared.projections_full());
  }
  SharedMemory::Position at;
  std::int64_t row = place.row(args, 0);
#pragma unroll 1
  for (int head = 0; head < place.heads; ++head, ++row, at.advance()) {
    // In the order in which the head before leaves what it has.
    if constexpr (kGated) {
      shared.gates().wait_empty(at);
      hopper::barrier_arrive_expect(shared.gates().full(at), kSquare);
      load_square(shared.tile(Layout::kGate), args.z, head_tile(place, head), shared.gates().full(at));
    }
    shared.states().wait_empty(at);
    const std::uint32_t full = shared.inputs().full(at);
    hopper::barrier_arrive_expect(full, 2 * kSquare + kStepsBytes);
    hopper::load_bytes(shared.tile(SharedMemory::step_rows(at)), args.workspace.steps + row * 4 * kSteps,
                       kStepsBytes, full);
    load_square(shared.tile(SharedMemory::dout(at)), args.dout, head_tile(place, head), full);
    load_square(shared.tile(SharedMemory::x(at)), args.x, head_tile(place, head), full);
    shared.dstates().wait_empty(at);
    hopper::barrier_arrive_expect(shared.dstates().full(at), kImage);
    hopper::load_bytes(shared.tile(Layout::kDstate),
                       static_cast<const unsigned char*>(args.workspace.dstates) + row * kImage, kImage,
                       shared.dstates().full(at));
    shared.inputs().wait_empty(at);
    hopper::barrier_arrive_expect(shared.states().full(at), kImage);
    hopper::load_bytes(shared.tile(SharedMemory::state(at)),
                       static_cast<const unsigned char*>(args.workspace.states) + row * kImage, kImage,
                       shared.states().full(at));
  }
}

/// A lane's part of ⟨S', S⟩, of all of it.
__device__ __forceinline__ float product_of_images(const SharedMemory& shared, SharedMemory::Position at,
                                                   int lane) {
  const auto* const states = reinterpret_cast<const float4*>(shared.pointer(SharedMemory::state(at))) + lane;
  const auto* const dstates = reinterpret_cast<const float4*>(shared.pointer(Layout::kDstate)) + lane;
  float sums[4] = {};
#pragma unroll 4
  for (int i = 0; i < kImage / 16 / 32; ++i) {
    const float4 a = states[i * 32];
    const float4 b = dstates[i * 32];
    sums[0] += a.x * b.x;
    sums[1] += a.y * b.y;
    sums[2] += a.z * b.z;
    sums[3] += a.w * b.w;
  }
  return sum_lanes<1, 16>((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

/// By one warp; a lane has steps 2·lane and 2·lane + 1, and the same columns of D.
__device__ inline void write_heads(const GradientArgs& args, const SharedMemory& shared, int lane) {
  const BlockPlace place(args);
  const SsdInputs& in = args.bwd.in;
  const auto ring = shared.flows();
  const int at_step = 2 * lane;
  const auto pair_of = [&](const float* from) { return *reinterpret_cast<const float2*>(from + at_step); };
  const auto sum_of_warps = [&](const float(&from)[kWarpsOfGroup][kSteps]) {
    float2 sum = pair_of(from[0]);
#pragma unroll
    for (int k = 1; k < kWarpsOfGroup; ++k) {
      const float2 other = pair_of(from[k]);
      sum = make_float2(sum.x + other.x, sum.y + other.y);
    }
    return sum;
  };
  SharedMemory::Position at;
  std::int64_t row = place.row(args, 0);
  for (int left = place.heads; left > 0; --left, ++row, at.advance()) {
    shared.states().wait_full(at);
    shared.dstates().wait_full(at);
    const float states = product_of_images(shared, at, lane);
    hopper::barrier_arrive(shared.states().empty(at));  // each lane for what it read
    hopper::barrier_arrive(shared.dstates().empty(at));
    ring.wait_full(at);
    const Flows& flows = shared.flows_of_head();
    const float2 delta = pair_of(flows.delta);
    const float2 into = sum_of_warps(flows.into);
    const float2 column = pair_of(flows.column);
    const float2 diagonal = pair_of(flows.diagonal);
    const float2 skip = pair_of(flows.skip);
    const float2 rows = sum_of_warps(flows.rows);
    float2 out = sum_of_warps(flows.out);
    out = make_float2(out.x + rows.x - delta.x * column.x, out.y + rows.y - delta.y * column.y);
    // What flows past all steps ends, for the sums, at the last one.
    if (lane == 31) out.y += flows.decay[0] * states;
    float* const to = args.workspace.flows + row * kFlowRows * kSteps + at_step;
    *reinterpret_cast<float2*>(to + kFlowOut * kSteps) = out;
    *reinterpret_cast<float2*>(to + kFlowIn * kSteps) = make_float2(delta.x * into.x, delta.y * into.y);
    *reinterpret_cast<float2*>(to + kFlowDirect * kSteps) =
        make_float2(diagonal.x + column.x + into.x, diagonal.y + column.y + into.y);
    const float all = sum_lanes<1, 16>(skip.x + skip.y);
    hopper::barrier_arrive(ring.empty(at));
    if (in.D == nullptr) continue;
    float* const sums = args.workspace.head_sums + row * args.plan.sums + 2;
    if (in.skip_per_headdim) {
      if (at_step < in.headdim) sums[at_step] = skip.x;
      if (at_step + 1 < in.headdim) sums[at_step + 1] = skip.y;
    } else if (lane == 0) {
      sums[0] = all;
    }
  }
}

}  // namespace ssmbench::ssd_hopper_bwd::tf32
