#pragma once

// The walks over states (states.cuh): kernels, arguments, launch. Included where they are instantiated.

#include <algorithm>

#include "kernels/ssd_chunk_scan/hopper_bwd/halves.h"
#include "kernels/ssd_chunk_scan/hopper_bwd/launch.h"
#include "kernels/ssd_chunk_scan/hopper_bwd/states.cuh"

namespace ssmbench::ssd_hopper_bwd {

/// Allows the kernels their shared memory. Throws DeviceError when the device has less.
template <class Io, int kStates, bool kGated, int kHeads>
WalkKernels walk_kernels() {
  constexpr int kBytes = std::max(WalkLayout<Traits<Io, kStates, false>, kHeads>::kBytes,
                                  WalkLayout<Traits<Io, kStates, kGated>, kHeads>::kBytes);
  const WalkKernels kernels{.parts = ssd_hopper_states_kernel<Io, kStates, kGated, WalkPass::parts, kHeads>,
                            .images = ssd_hopper_states_kernel<Io, kStates, kGated, WalkPass::images, kHeads>,
                            .heads_of_block = kHeads,
                            .shared_bytes = kBytes};
  allow_shared_bytes(kernels.parts, kBytes);
  allow_shared_bytes(kernels.images, kBytes);
  return kernels;
}

template <class Io, int kHeads>
WalkKernels walk_kernels_for(int dstate_tiles, bool gated) {
  if (dstate_tiles == 1)
    return gated ? walk_kernels<Io, 64, true, kHeads>() : walk_kernels<Io, 64, false, kHeads>();
  return gated ? walk_kernels<Io, 128, true, kHeads>() : walk_kernels<Io, 128, false, kHeads>();
}

template <class Io>
Walks make_walks(const SsdBwdArgs& bwd, const ChunkedBwdPlan& plan, const ChunkedBwdWorkspace& workspace,
                 void* handed) {
  const SsdInputs& in = bwd.in;
  const auto of_heads = [&](const void* data) { return map_sequences(data, in, in.nheads, in.headdim); };
  const bool gated = in.z != nullptr;
  const int states = 64 * plan.dstate_tiles;
  const std::int64_t heads = in.batch * in.nheads;
  const int parts = walk_parts(heads, plan.chunks);
  Walks walks{};
  walks.of_one_head = walk_kernels_for<Io, 1>(plan.dstate_tiles, gated);
  walks.kernels = walks_in_pairs(heads, parts, in.heads_per_group)
                      ? walk_kernels_for<Io, 2>(plan.dstate_tiles, gated)
                      : walks.of_one_head;
  WalkArgs& forward = walks.forward;
  forward = {.left = of_heads(in.x),
             .gate = {},
             .right = map_sequences(in.B, in, in.groups, in.dstate),
             .in = in,
             .first = in.initial_floats(),
             .last = nullptr,
             .steps = workspace.steps,
             .images = workspace.states,
             .unscales = workspace.unscales + kUnscaleState,
             .handed = handed_states(walk_handed_layout(heads, parts, states), handed),
             .chunks = static_cast<int>(plan.chunks),
             .parts = parts};
  WalkArgs& backward = walks.backward;
  backward = forward;
  backward.left = of_heads(bwd.dout);
  if (gated) backward.gate = of_heads(in.z);
  backward.right = map_sequences(in.C, in, in.groups, in.dstate);
  backward.first = bwd.dfinal_states;
  backward.last = bwd.dinitial_states;
  backward.images = workspace.dstates;
  backward.unscales = workspace.unscales + kUnscaleGradient;
  backward.handed.states += heads * parts * kSteps * states;
  backward.handed.decays += heads * parts;
  walks.plan = plan;
  walks.steps = workspace.steps;
  return walks;
}

template <class Io>
void launch_walks(const Walks& walks, cudaStream_t stream) {
  launch_steps<Io, Io>(walks.forward.in, walks.plan, walks.steps, stream);
  launch_walks_alone<Io>(walks, stream);
}

template <class Io>
void launch_walks_alone(const Walks& walks, cudaStream_t stream) {
  const WalkArgs& forward = walks.forward;
  const std::int64_t heads = forward.in.batch * forward.in.nheads;
  const WalkKernels& kernels = walks.kernels;
  const auto blocks = static_cast<unsigned>(2 * heads / kernels.heads_of_block * forward.parts);
  const int threads = walk_threads(kernels.heads_of_block);
  const auto bytes = static_cast<std::size_t>(kernels.shared_bytes);
  if (forward.parts > 1) {
    kernels.parts<<<blocks, threads, bytes, stream>>>(forward, walks.backward);
    check_cuda(cudaGetLastError());
    launch_join_parts(forward.handed,
                      {2 * heads, forward.parts, 1, kSteps * 64 * walks.plan.dstate_tiles / 4}, stream);
  }
  kernels.images<<<blocks, threads, bytes, stream>>>(forward, walks.backward);
  check_cuda(cudaGetLastError());
}

template <class Io>
void launch_all_parts(const Walks& walks, cudaStream_t stream) {
  launch_steps<Io, Io>(walks.forward.in, walks.plan, walks.steps, stream);
  WalkArgs forward = walks.forward;
  WalkArgs backward = walks.backward;
  for (WalkArgs* walk : {&forward, &backward}) {
    walk->first = nullptr;
    walk->images = nullptr;  // last parts too
  }
  const std::int64_t heads = forward.in.batch * forward.in.nheads;
  // Heads forget at different speeds: where ends alone are asked for each has chunks of its own, and two of them
  // cannot share B and C.
  const WalkKernels& kernels = forward.end_alone ? walks.of_one_head : walks.kernels;
  kernels.parts<<<static_cast<unsigned>(heads / kernels.heads_of_block * (forward.parts + backward.parts)),
                  walk_threads(kernels.heads_of_block), static_cast<std::size_t>(kernels.shared_bytes),
                  stream>>>(forward, backward);
  check_cuda(cudaGetLastError());
}

template <class Io>
void launch_images(const Walks& walks, cudaStream_t stream) {
  const std::int64_t heads = walks.forward.in.batch * walks.forward.in.nheads;
  const WalkKernels& kernels = walks.kernels;
  kernels.images<<<static_cast<unsigned>(2 * heads / kernels.heads_of_block * walks.forward.parts),
                   walk_threads(kernels.heads_of_block), static_cast<std::size_t>(kernels.shared_bytes),
                   stream>>>(walks.forward, walks.backward);
  check_cuda(cudaGetLastError());
}

}  // namespace ssmbench::ssd_hopper_bwd
