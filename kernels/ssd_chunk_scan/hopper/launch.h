#pragma once

#include "kernels/common/hopper/dependent_launch.cuh"
#include "kernels/common/hopper/tensor_map.h"
#include "kernels/ssd_chunk_scan/hopper/variants.h"
#include "model/launch.h"

// The host's side of cuda-hopper: tensor maps, workspace, launch.

namespace ssmbench::ssd_hopper {

/// States that blocks hand on; none where no item is cut.
constexpr HandedLayout handed_layout_of(const Plan& plan, int states) {
  return handed_layout(plan.states_cross() ? plan.blocks * plan.cluster : 0,
                       plan.tiles_per_item / plan.cluster, kRows * states);
}

/// Of a (B, L, rows, columns) tensor, in tiles of `steps` steps.
inline CUtensorMap map_steps(const SsdInputs& in, const void* data, std::int64_t columns, std::int64_t rows,
                             unsigned steps = kSteps) {
  const auto size = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  return hopper::tensor_map({.data = data,
                             .rank = 4,
                             .sizes = {size(columns), size(rows), size(in.seqlen), size(in.batch)},
                             .tile = {hopper::kTileColumns, 1, steps, 1}});
}

/// Throws DeviceError when a tensor cannot be mapped.
inline HopperArgs make_args(const SsdArgs& ssd, const Plan& plan, int states, void* workspace) {
  const SsdInputs& in = ssd.in;
  const auto map = [&](const void* data, std::int64_t columns, std::int64_t rows) {
    return map_steps(in, data, columns, rows);
  };
  HopperArgs args{};
  args.x = map(in.x, in.headdim, in.nheads);
  args.B = map(in.B, in.dstate, in.groups);
  args.C = map(in.C, in.dstate, in.groups);
  if (in.z != nullptr) args.z = map(in.z, in.headdim, in.nheads);
  if (ssd.out != nullptr) args.out = map(ssd.out, in.headdim, in.nheads);
  args.ssd = ssd;
  args.plan = plan;
  args.handed = handed_states(handed_layout_of(plan, states), workspace);
  return args;
}

/// Throws DeviceError when it cannot be launched. `states`: dstate, padded.
inline void launch(const Variant& variant, const HopperArgs& args, int states, cudaStream_t stream) {
  const Plan& plan = args.plan;
  const auto blocks = static_cast<unsigned>(plan.blocks * plan.cluster);
  if (plan.hands_over()) check_cuda(cudaMemsetAsync(args.handed.flags, 0, blocks * sizeof(unsigned), stream));
  if (plan.parts > 1) {
    const auto bytes = static_cast<std::size_t>(variant.parts_shared_bytes);
    variant.parts_kernel<<<blocks, kStateThreads, bytes, stream>>>(args);
    check_cuda(cudaGetLastError());
    launch_join_parts(args.handed, {plan.items, plan.parts, plan.tiles_per_item, kRows * states / 4}, stream);
  }
  hopper::launch_kernel(plan.parts > 1 ? hopper::Begin::early : hopper::Begin::after, stream, variant.kernel,
                        blocks, dim3(kThreads), variant.shared_bytes, args);
}

/// The workspace of packed sequences.
struct PackedLayout {
  HandedLayout handed;
  std::size_t starts, firsts, stops, bytes;

  /// `stop_count`: of states_at.
  constexpr PackedLayout(const Plan& plan, std::int64_t sequences, std::int64_t stop_count, int states)
      : handed(handed_layout(plan.blocks, plan.tiles_per_item, kRows * states)) {
    WorkspaceLayout layout;
    layout.take(static_cast<std::int64_t>(handed.bytes), 1);
    starts = layout.take(plan.blocks, sizeof(PackedStart));
    firsts = layout.take(plan.parts > 1 ? sequences * plan.items + 1 : 0, sizeof(std::int32_t));
    stops = layout.take(stop_count, sizeof(PackedStop));
    bytes = layout.bytes();
  }
};

/// Throws DeviceError when a tensor cannot be mapped.
inline PackedArgs make_packed_args(const SsdArgs& ssd, const SsdSequenceTable& sequences,
                                   const SsdStops& stops, const Plan& plan, int states, void* workspace) {
  const SsdInputs& in = ssd.in;
  const auto rows_of = [&](const void* data, std::int64_t columns, std::int64_t rows) {
    RowMaps maps;
    for (int i = 0; i < kRowMaps; ++i) maps.of_rows[i] = map_steps(in, data, columns, rows, 1U << i);
    return maps;
  };
  const PackedLayout layout(plan, sequences.count, stops.count, states);
  auto* const base = static_cast<unsigned char*>(workspace);
  PackedArgs args{};
  static_cast<HopperArgs&>(args) = make_args(ssd, plan, states, workspace);
  args.handed = handed_states(layout.handed, workspace);
  args.cu_seqlens = sequences.cu_seqlens;
  args.starts = reinterpret_cast<PackedStart*>(base + layout.starts);
  args.firsts = reinterpret_cast<std::int32_t*>(base + layout.firsts);
  args.stop_count = static_cast<int>(stops.count);
  args.stops = reinterpret_cast<PackedStop*>(base + layout.stops);
  args.stop_states = stops.states;
  args.x_rows = rows_of(in.x, in.headdim, in.nheads);
  args.B_rows = rows_of(in.B, in.dstate, in.groups);
  args.C_rows = rows_of(in.C, in.dstate, in.groups);
  args.out_rows = rows_of(ssd.out, in.headdim, in.nheads);
  return args;
}

/// Where blocks start, and the scan. `states_at`: as given. Its launches throw DeviceError when one cannot be
/// launched.
Launch packed_launch(const PackedVariant& variant, const PackedArgs& args, int sequences,
                     const std::int32_t* states_at, int states);

}  // namespace ssmbench::ssd_hopper
