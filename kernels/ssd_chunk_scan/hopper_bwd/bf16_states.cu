// cuda-hopper backward, bf16: instantiations of states.cuh.

#include "kernels/ssd_chunk_scan/hopper_bwd/launch.h"
#include "kernels/ssd_chunk_scan/hopper_bwd/states.cuh"

namespace ssmbench::ssd_hopper_bwd {
namespace {

template <class T, Walk kWalk>
WalkLaunch walk_of(const WalkArgs& args) {
  const auto kernel = ssd_hopper_states_kernel<T, kWalk>;
  allow_shared_bytes(kernel, WalkLayout<T>::kBytes);
  return {kernel, WalkLayout<T>::kBytes, args};
}

template <class Io, int kStates>
Walks walks_of(const WalkArgs& forward, const WalkArgs& backward, bool gated) {
  return {.plan = {},
          .steps = nullptr,
          .forward = walk_of<Traits<Io, kStates, false>, Walk::forward>(forward),
          .backward = gated ? walk_of<Traits<Io, kStates, true>, Walk::backward>(backward)
                            : walk_of<Traits<Io, kStates, false>, Walk::backward>(backward)};
}

void launch_walk(const WalkLaunch& walk, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(walk.args.in.batch * walk.args.in.nheads);
  walk.kernel<<<blocks, kWalkThreads, static_cast<std::size_t>(walk.shared_bytes), stream>>>(walk.args);
  check_cuda(cudaGetLastError());
}

}  // namespace

template <class Io>
Walks make_walks(const SsdBwdArgs& bwd, const ChunkedBwdPlan& plan, const ChunkedBwdWorkspace& workspace) {
  const SsdInputs& in = bwd.in;
  const auto of_heads = [&](const void* data) { return map_sequences(data, in, in.nheads, in.headdim); };
  const auto chunks = static_cast<int>(plan.chunks);
  const WalkArgs forward{.left = of_heads(in.x),
                         .gate = {},
                         .right = map_sequences(in.B, in, in.groups, in.dstate),
                         .in = in,
                         .first = in.initial_states,
                         .last = nullptr,
                         .steps = workspace.steps,
                         .images = workspace.states,
                         .chunks = chunks};
  const WalkArgs backward{.left = of_heads(bwd.dout),
                          .gate = in.z != nullptr ? of_heads(in.z) : CUtensorMap{},
                          .right = map_sequences(in.C, in, in.groups, in.dstate),
                          .in = in,
                          .first = bwd.dfinal_states,
                          .last = bwd.dinitial_states,
                          .steps = workspace.steps,
                          .images = workspace.dstates,
                          .chunks = chunks};
  Walks walks = plan.dstate_tiles == 1 ? walks_of<Io, 64>(forward, backward, in.z != nullptr)
                                       : walks_of<Io, 128>(forward, backward, in.z != nullptr);
  walks.plan = plan;
  walks.steps = workspace.steps;
  return walks;
}

template <class Io>
void launch_walks(const Walks& walks, cudaStream_t stream) {
  launch_steps<Io, Io>(walks.forward.args.in, walks.plan, walks.steps, stream);
  launch_walk(walks.forward, stream);
  launch_walk(walks.backward, stream);
}

template Walks make_walks<__nv_bfloat16>(const SsdBwdArgs&, const ChunkedBwdPlan&,
                                         const ChunkedBwdWorkspace&);
template void launch_walks<__nv_bfloat16>(const Walks&, cudaStream_t);

}  // namespace ssmbench::ssd_hopper_bwd
