#pragma once

#include "kernels/common/hopper/tensor_map.h"
#include "kernels/ssd_chunk_scan/hopper/variants.h"

// The host's side of cuda-hopper: tensor maps, workspace, launch.

namespace ssmbench::ssd_hopper {

/// What blocks hand on, each the states of an item, padded, and a flag; nothing where no item is cut.
constexpr std::size_t handed_floats(const Plan& plan, int states) {
  const std::size_t of_block = static_cast<std::size_t>(plan.tiles_per_item) * kRows * states;
  return plan.hands_over() ? plan.blocks * of_block : 0;
}
constexpr std::size_t handed_bytes(const Plan& plan, int states) {
  return plan.hands_over() ? handed_floats(plan, states) * sizeof(float) + plan.blocks * sizeof(unsigned) : 0;
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
  args.out = map(ssd.out, in.headdim, in.nheads);
  args.ssd = ssd;
  args.plan = plan;
  args.handed_states = static_cast<float*>(workspace);
  args.handed_flags = reinterpret_cast<unsigned*>(args.handed_states + handed_floats(plan, states));
  return args;
}

/// Throws DeviceError when it cannot be launched.
inline void launch(const Variant& variant, const HopperArgs& args, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(args.plan.blocks);
  if (args.plan.hands_over())
    check_cuda(cudaMemsetAsync(args.handed_flags, 0, blocks * sizeof(unsigned), stream));
  variant.kernel<<<blocks, kThreads, static_cast<std::size_t>(variant.shared_bytes), stream>>>(args);
  check_cuda(cudaGetLastError());
}

}  // namespace ssmbench::ssd_hopper
