#pragma once

// The kernels of cuda-chunked backward and cuda-chunked-f32 backward, in the order they run:
//
//   states.cuh          Δ and decays of all steps; the states entering all chunks, walking forward; the
//                       gradients of the states leaving them, walking backward
//   gradients.cuh       one block per chunk: every gradient but those of Δ
//   step_gradients.cuh  ddt
//   sums.cuh            sums over batch, time and slices of heads
//
// T is the element of the tiles that are multiplied, Io that of the tensors. Chunks have kSide<T> steps
// whatever chunk_size says: the weights of a chunk are one tile then.
// Source of the decomposition: Dao & Gu, "Transformers are SSMs" (2024), section 6.

#include "kernels/ssd_chunk_scan/chunked_bwd/gradients.cuh"
#include "kernels/ssd_chunk_scan/chunked_bwd/step_gradients.cuh"
#include "kernels/ssd_chunk_scan/chunked_bwd/sums.cuh"
#include "kernels/ssd_chunk_scan/chunked_bwd/variant.h"

namespace ssmbench {

template <class T, class Io, int kTilesN>
void launch_gradients(const SsdBwdArgs& args, const ChunkedBwdPlan& plan,
                      const ChunkedBwdWorkspace& workspace, cudaStream_t stream) {
  const int bytes = gradients_shared_bytes<T>(plan.dstate_tiles);
  const auto kernel = ssd_gradients_kernel<T, Io, kTilesN>;
  allow_shared_bytes(kernel, bytes);
  const std::int64_t blocks = args.in.batch * plan.chunks * args.in.groups * plan.slices;
  kernel<<<static_cast<unsigned>(blocks), kGradientThreads, static_cast<std::size_t>(bytes), stream>>>(
      args, plan, workspace);
  check_cuda(cudaGetLastError());
}

/// The kernels after that of the gradients: ddt, and the sums.
template <class T, class Io>
void launch_gradient_sums(const SsdBwdArgs& args, const ChunkedBwdPlan& plan,
                          const ChunkedBwdWorkspace& workspace, cudaStream_t stream) {
  launch_finish_steps<T, Io>(args, plan, workspace, stream);
  launch_head_sums<Io>(args, args.in.batch * plan.chunks, plan.sums, workspace.head_sums, stream);
  if (plan.slices > 1) launch_projections<Io>(args, plan.slices, workspace.projections, stream);
}

/// A ChunkedBwdLaunch.
template <class T, class Io = T>
void launch_chunked_bwd(const SsdBwdArgs& args, const ChunkedBwdPlan& plan,
                        const ChunkedBwdWorkspace& workspace, cudaStream_t stream) {
  const SsdInputs& in = args.in;
  launch_steps<T, Io>(in, plan, workspace.steps, stream);
  launch_states<T, Io, Walk::forward>(in,
                                      {.left = in.x,
                                       .gate = nullptr,
                                       .right = in.B,
                                       .first = in.initial_floats(),
                                       .last = nullptr,
                                       .steps = workspace.steps,
                                       .images = workspace.states,
                                       .unscales = workspace.unscales},
                                      plan, stream);
  launch_states<T, Io, Walk::backward>(in,
                                       {.left = args.dout,
                                        .gate = in.z,
                                        .right = in.C,
                                        .first = args.dfinal_states,
                                        .last = args.dinitial_states,
                                        .steps = workspace.steps,
                                        .images = workspace.dstates,
                                        .unscales = workspace.unscales},
                                       plan, stream);
  if constexpr (kSide<T> == 32)
    launch_gradients<T, Io, 8>(args, plan, workspace, stream);
  else if (plan.dstate_tiles == 1)
    launch_gradients<T, Io, 1>(args, plan, workspace, stream);
  else if (plan.dstate_tiles == 2)
    launch_gradients<T, Io, 2>(args, plan, workspace, stream);
  else
    launch_gradients<T, Io, 4>(args, plan, workspace, stream);
  launch_gradient_sums<T, Io>(args, plan, workspace, stream);
}

}  // namespace ssmbench
