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

/// The same of f32 elements, in tiles of 64 steps.
inline CUtensorMap map_f32_steps(const SsdInputs& in, const void* data, std::int64_t columns,
                                 std::int64_t rows, bool rounded_to_tf32 = false) {
  const auto size = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  return hopper::tensor_map({.data = data,
                             .rank = 4,
                             .sizes = {size(columns), size(rows), size(in.seqlen), size(in.batch)},
                             .tile = {hopper::kTileColumns / 2, 1, kSteps, 1},
                             .element_bytes = 4,
                             .rounded_to_tf32 = rounded_to_tf32});
}

/// Of f32 tensors: a block's heads hand on states each by itself. Throws DeviceError when a tensor cannot be
/// mapped.
constexpr HandedLayout tf32_handed_layout_of(const Plan& plan, int states) {
  return handed_layout(plan.states_cross() ? plan.blocks * plan.tiles_per_item : 0, 1, kRows * states);
}
inline HopperArgs make_tf32_args(const SsdArgs& ssd, const Plan& plan, int states, void* workspace) {
  const SsdInputs& in = ssd.in;
  HopperArgs args{};
  args.x = map_f32_steps(in, in.x, in.headdim, in.nheads);
  args.B = map_f32_steps(in, in.B, in.dstate, in.groups, true);
  args.C = map_f32_steps(in, in.C, in.dstate, in.groups, true);
  if (in.z != nullptr) args.z = map_f32_steps(in, in.z, in.headdim, in.nheads);
  args.out = map_f32_steps(in, ssd.out, in.headdim, in.nheads);
  args.ssd = ssd;
  args.plan = plan;
  args.handed = handed_states(tf32_handed_layout_of(plan, states), workspace);
  return args;
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

/// The blocks of a plan, in its clusters. Throws DeviceError when they cannot be launched.
inline void launch_plan(hopper::Begin begin, cudaStream_t stream, void (*kernel)(HopperArgs), int threads,
                        int shared_bytes, const HopperArgs& args) {
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {static_cast<unsigned>(args.plan.cluster), 1, 1};
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = begin == hopper::Begin::early ? 1 : 0;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(args.plan.blocks * args.plan.cluster));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  check_cuda(cudaLaunchKernelEx(&config, kernel, args));
}

/// Throws DeviceError when it cannot be launched. `states`: dstate, padded.
inline void launch(const Variant& variant, const HopperArgs& args, int states, cudaStream_t stream) {
  const Plan& plan = args.plan;
  const std::size_t flags = std::size_t(plan.blocks * plan.cluster * variant.state_groups);
  if (plan.hands_over()) check_cuda(cudaMemsetAsync(args.handed.flags, 0, flags * sizeof(unsigned), stream));
  if (plan.parts > 1) {
    launch_plan(hopper::Begin::after, stream, variant.parts_kernel, variant.parts_threads,
                variant.parts_shared_bytes, args);
    launch_join_parts(args.handed, {plan.items, plan.parts, plan.tiles_per_item, kRows * states / 4}, stream);
  }
  launch_plan(plan.parts > 1 ? hopper::Begin::early : hopper::Begin::after, stream, variant.kernel,
              variant.threads, variant.shared_bytes, args);
}

/// The workspace of packed sequences.
struct PackedLayout {
  HandedLayout handed;
  std::size_t starts, firsts, stops, first_stops, bytes;

  /// `stop_count`: of states_at.
  constexpr PackedLayout(const Plan& plan, std::int64_t sequences, std::int64_t stop_count, int states)
      : handed(handed_layout(plan.blocks, plan.tiles_per_item, kRows * states)) {
    WorkspaceLayout layout;
    layout.take(static_cast<std::int64_t>(handed.bytes), 1);
    starts = layout.take(plan.blocks, sizeof(PackedStart));
    firsts = layout.take(plan.parts > 1 ? sequences * plan.items + 1 : 0, sizeof(std::int32_t));
    stops = layout.take(stop_count, sizeof(PackedStop));
    first_stops = layout.take(stop_count > 0 ? sequences : 0, sizeof(PackedStop));
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
  args.first_stops = reinterpret_cast<PackedStop*>(base + layout.first_stops);
  args.stop_states = static_cast<float*>(stops.states);
  args.x_rows = rows_of(in.x, in.headdim, in.nheads);
  args.B_rows = rows_of(in.B, in.dstate, in.groups);
  args.C_rows = rows_of(in.C, in.dstate, in.groups);
  if (ssd.out != nullptr) args.out_rows = rows_of(ssd.out, in.headdim, in.nheads);
  return args;
}

/// Where blocks start, which the scan reads. `states_at`: as given. Throws DeviceError when it cannot be
/// launched.
Launch packed_plan_launch(const PackedArgs& args, int sequences, const std::int32_t* states_at);
/// The same, and the scan. Its launches throw DeviceError when one cannot be launched.
Launch packed_launch(const PackedVariant& variant, const PackedArgs& args, int sequences,
                     const std::int32_t* states_at, int states);

}  // namespace ssmbench::ssd_hopper
