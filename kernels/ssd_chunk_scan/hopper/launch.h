#pragma once

#include "kernels/common/hopper/dependent_launch.cuh"
#include "kernels/common/hopper/tensor_map.h"
#include "kernels/ssd_chunk_scan/hopper/variants.h"

// The host's side of cuda-hopper: tensor maps, workspace, launch.

namespace ssmbench::ssd_hopper {

/// States that blocks hand on; none where no item is cut.
constexpr HandedLayout handed_layout_of(const Plan& plan, int states) {
  return handed_layout(plan.states_cross() ? plan.blocks : 0, plan.tiles_per_item, kRows * states);
}

/// Throws DeviceError when a tensor cannot be mapped.
inline HopperArgs make_args(const SsdArgs& ssd, const Plan& plan, int states, void* workspace) {
  const SsdInputs& in = ssd.in;
  const auto map = [&](const void* data, std::int64_t columns, std::int64_t rows) {
    const auto size = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
    return hopper::tensor_map({.data = data,
                               .rank = 4,
                               .sizes = {size(columns), size(rows), size(in.seqlen), size(in.batch)},
                               .tile = {hopper::kTileColumns, 1, kSteps, 1}});
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
  const auto blocks = static_cast<unsigned>(plan.blocks);
  if (plan.hands_over()) check_cuda(cudaMemsetAsync(args.handed.flags, 0, blocks * sizeof(unsigned), stream));
  if (plan.parts > 1) {
    const auto bytes = static_cast<std::size_t>(variant.parts_shared_bytes);
    variant.parts_kernel<<<blocks, kStateThreads, bytes, stream>>>(args);
    check_cuda(cudaGetLastError());
    launch_join_parts(args.handed, {plan.items, plan.parts, plan.tiles_per_item, kRows * states / 4}, stream);
  }
  hopper::launch_kernel(plan.parts > 1 ? hopper::Begin::early : hopper::Begin::after, stream, variant.kernel,
                        plan.blocks, dim3(kThreads), variant.shared_bytes, args);
}

}  // namespace ssmbench::ssd_hopper
