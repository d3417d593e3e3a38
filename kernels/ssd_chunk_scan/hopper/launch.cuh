#pragma once

// The host's side of cuda-hopper: tensor maps, workspace, launch.

#include "kernels/common/hopper/tma.cuh"
#include "kernels/ssd_chunk_scan/hopper/kernel.cuh"

namespace ssmbench::ssd_hopper {

/// What a block hands on: the states of an item, padded, and a flag.
constexpr std::size_t handed_floats(const Plan& plan, int states) {
  return plan.hands_over() ? static_cast<std::size_t>(plan.blocks) * plan.tiles_per_item * kRows * states : 0;
}
constexpr std::size_t handed_bytes(const Plan& plan, int states) {
  return plan.hands_over() ? handed_floats(plan, states) * sizeof(float) + plan.blocks * sizeof(unsigned) : 0;
}

inline HopperArgs make_args(const SsdArgs& ssd, const Plan& plan, int states, void* workspace) {
  const SsdInputs& in = ssd.in;
  const auto size = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  const auto heads = [&](const void* data) {
    return hopper::tensor_map(
        {data, {size(in.headdim), size(in.nheads), size(in.seqlen), size(in.batch)}, kSteps});
  };
  const auto projection = [&](const void* data) {
    return hopper::tensor_map(
        {data, {size(in.dstate), size(in.groups), size(in.seqlen), size(in.batch)}, kSteps});
  };
  HopperArgs args{};
  args.x = heads(in.x);
  args.B = projection(in.B);
  args.C = projection(in.C);
  if (in.z != nullptr) args.z = heads(in.z);
  args.out = heads(ssd.out);
  args.ssd = ssd;
  args.plan = plan;
  args.handed_states = static_cast<float*>(workspace);
  args.handed_flags = reinterpret_cast<unsigned*>(args.handed_states + handed_floats(plan, states));
  return args;
}

/// A kernel and the dynamic shared memory of its blocks.
struct Variant {
  void (*kernel)(HopperArgs);
  int shared_bytes;
};

template <class T>
Variant variant() {
  return {ssd_kernel<T>, T::Layout::kBytes};
}

inline void launch(const Variant& variant, const HopperArgs& args, cudaStream_t stream) {
  if (args.plan.hands_over())
    check_cuda(cudaMemsetAsync(args.handed_flags, 0, args.plan.blocks * sizeof(unsigned), stream));
  variant.kernel<<<static_cast<unsigned>(args.plan.blocks), kThreads, static_cast<std::size_t>(variant.shared_bytes),
                   stream>>>(args);
  check_cuda(cudaGetLastError());
}

}  // namespace ssmbench::ssd_hopper
