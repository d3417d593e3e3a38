// cuda-hopper backward: f32, products in tf32.

#include "kernels/ssd_chunk_scan/chunked_bwd/kernel.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/tf32/kernel.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/tf32/launch.h"
#include "kernels/ssd_chunk_scan/hopper_bwd/tf32/states.cuh"

namespace ssmbench::ssd_hopper_bwd::tf32 {
namespace {

CUtensorMap map_floats(const void* data, const SsdInputs& in, std::int64_t rows, std::int64_t columns,
                       bool rounded = false) {
  const auto size = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  return hopper::tensor_map({.data = data,
                             .rank = 4,
                             .sizes = {size(columns), size(rows), size(in.seqlen), size(in.batch)},
                             .tile = {kTileColumns, 1, kSteps, 1},
                             .element_bytes = 4,
                             .rounded_to_tf32 = rounded});
}

}  // namespace

Gradients make_gradients(const SsdBwdArgs& bwd, const ChunkedBwdPlan& plan,
                         const ChunkedBwdWorkspace& workspace) {
  const SsdInputs& in = bwd.in;
  const bool gated = in.z != nullptr;
  const auto of_heads = [&](const void* data) { return map_floats(data, in, in.nheads, in.headdim); };
  Gradients made{};
  GradientArgs& args = made.args;
  args.x = of_heads(in.x);
  args.dout = of_heads(bwd.dout);
  args.dx = of_heads(bwd.dx);
  if (gated) {
    args.z = of_heads(in.z);
    args.dz = of_heads(bwd.dz);
  }
  args.B = map_floats(in.B, in, in.groups, in.dstate, true);
  args.C = map_floats(in.C, in, in.groups, in.dstate, true);
  args.bwd = bwd;
  args.plan = plan;
  args.workspace = workspace;

  WalkArgs& forward = made.forward;
  forward = {.left = args.x,
             .gate = {},
             .right = args.B,
             .in = in,
             .first = in.initial_floats(),
             .last = nullptr,
             .steps = workspace.steps,
             .images = workspace.states,
             .unscales = nullptr,
             .handed = {},
             .chunks = static_cast<int>(plan.chunks),
             .parts = 1};
  WalkArgs& backward = made.backward;
  backward = forward;
  backward.left = args.dout;
  backward.gate = args.z;
  backward.right = args.C;
  backward.first = bwd.dfinal_states;
  backward.last = bwd.dinitial_states;
  backward.images = workspace.dstates;

  allow_shared_bytes(gated ? ssd_tf32_states_kernel<true> : ssd_tf32_states_kernel<false>,
                     WalkLayout::kBytes);
  allow_shared_bytes(gated ? ssd_tf32_gradients_kernel<true> : ssd_tf32_gradients_kernel<false>,
                     Layout::kBytes);
  return made;
}

void launch(const Gradients& gradients, cudaStream_t stream) {
  const GradientArgs& args = gradients.args;
  const SsdInputs& in = args.bwd.in;
  const bool gated = in.z != nullptr;
  launch_steps<float, float>(in, args.plan, args.workspace.steps, stream);
  const auto walks = gated ? ssd_tf32_states_kernel<true> : ssd_tf32_states_kernel<false>;
  walks<<<static_cast<unsigned>(2 * in.batch * in.nheads), kWalkThreads, WalkLayout::kBytes, stream>>>(
      gradients.forward, gradients.backward);
  check_cuda(cudaGetLastError());
  const auto kernel = gated ? ssd_tf32_gradients_kernel<true> : ssd_tf32_gradients_kernel<false>;
  const std::int64_t blocks = in.batch * args.plan.chunks * in.groups * args.plan.slices;
  kernel<<<static_cast<unsigned>(blocks), kThreads, Layout::kBytes, stream>>>(args);
  check_cuda(cudaGetLastError());
  launch_gradient_sums<float, float>(args.bwd, args.plan, args.workspace, stream);
}

}  // namespace ssmbench::ssd_hopper_bwd::tf32
