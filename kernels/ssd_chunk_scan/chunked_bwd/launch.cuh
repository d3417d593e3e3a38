#pragma once

// The kernels of cuda-chunked backward, one after the other.

#include "device/cuda_check.h"
#include "kernels/ssd_chunk_scan/chunked_bwd/chunked_bwd.h"
#include "kernels/ssd_chunk_scan/chunked_bwd/gradients.cuh"
#include "kernels/ssd_chunk_scan/chunked_bwd/states.cuh"
#include "kernels/ssd_chunk_scan/chunked_bwd/sums.cuh"

namespace ssmbench {

/// One warp per row.
inline unsigned steps_blocks(const ChunkedBwdPlan& plan) {
  return static_cast<unsigned>(ceil_div(plan.rows, kStepsThreads / 32));
}

template <class Kernel>
void allow_shared_bytes(Kernel kernel, int bytes) {
  check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

template <class T, Walk kWalk>
void launch_states(const SsdBwdArgs& args, const ChunkedBwdPlan& plan, const ChunkedBwdWorkspace& workspace,
                   cudaStream_t stream) {
  constexpr int kBytes = sizeof(StatesShared<T>);
  const auto kernel = ssd_states_kernel<T, kWalk>;
  allow_shared_bytes(kernel, kBytes);
  const std::int64_t blocks = args.in.batch * args.in.nheads * plan.headdim_tiles * plan.dstate_tiles;
  kernel<<<static_cast<unsigned>(blocks), kStatesThreads, kBytes, stream>>>(args, plan, workspace);
  check_cuda(cudaGetLastError());
}

template <class T, int kTilesN>
void launch_gradients(const SsdBwdArgs& args, const ChunkedBwdPlan& plan,
                      const ChunkedBwdWorkspace& workspace, cudaStream_t stream) {
  const int bytes = gradients_shared_bytes<T>(plan.dstate_tiles);
  const auto kernel = ssd_gradients_kernel<T, kTilesN>;
  allow_shared_bytes(kernel, bytes);
  const std::int64_t blocks = args.in.batch * plan.chunks * args.in.groups * plan.slices;
  kernel<<<static_cast<unsigned>(blocks), kGradientThreads, static_cast<std::size_t>(bytes), stream>>>(
      args, plan, workspace);
  check_cuda(cudaGetLastError());
}

/// A ChunkedBwdLaunch.
template <class T>
void launch_chunked_bwd(const SsdBwdArgs& args, const ChunkedBwdPlan& plan,
                        const ChunkedBwdWorkspace& workspace, cudaStream_t stream) {
  ssd_steps_kernel<T><<<steps_blocks(plan), kStepsThreads, 0, stream>>>(args, plan, workspace.steps);
  check_cuda(cudaGetLastError());
  launch_states<T, Walk::forward>(args, plan, workspace, stream);
  launch_states<T, Walk::backward>(args, plan, workspace, stream);
  if (plan.dstate_tiles == 1)
    launch_gradients<T, 1>(args, plan, workspace, stream);
  else if (plan.dstate_tiles == 2)
    launch_gradients<T, 2>(args, plan, workspace, stream);
  else
    launch_gradients<T, 4>(args, plan, workspace, stream);

  ssd_finish_steps_kernel<T><<<steps_blocks(plan), kStepsThreads, 0, stream>>>(args, plan, workspace);
  check_cuda(cudaGetLastError());
  launch_head_sums<T>(args, args.in.batch * plan.chunks, plan.sums, workspace.head_sums, stream);
  if (plan.slices > 1) launch_projections<T>(args, plan.slices, workspace.projections, stream);
}

}  // namespace ssmbench
