// cuda-chunked-f32 for the gradients: registration and launch. The picture is in gradients.h. Tensors in
// 16 bits are copied to f32.

#include <string>

#include "base/errors.h"
#include "kernels/common/f32_copies.h"
#include "kernels/common/launch.cuh"
#include "kernels/mamba3/bind.h"
#include "kernels/mamba3/chunked_bwd/gradients.h"
#include "kernels/mamba3/chunked_bwd/sums.h"

namespace ssmbench::mamba3::chunked_bwd {
namespace {

/// A block's threads.
struct BlockTeam {
  template <class Body>
  __device__ void for_all(int count, const Body& body) const {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) body(i);
    __syncthreads();
  }
};

struct DeviceIo {
  static __device__ float load(const void* data, std::int64_t at) {
    return static_cast<const float*>(data)[at];
  }
  static __device__ void store(void* data, std::int64_t at, float value) {
    static_cast<float*>(data)[at] = value;
  }
};

__global__ void __launch_bounds__(kGradientThreads)
    gradients_kernel(const Mamba3BwdArgs args, const GradientPlan plan, float* workspace) {
  const BlockTeam team;
  HeadGradients<DeviceIo, BlockTeam> gradients(args, plan, workspace, blockIdx.x, team);
  for (std::int64_t task = blockIdx.x; task < plan.tasks; task += gridDim.x) gradients.run(task);
}

__device__ inline std::int64_t thread_of_grid() {
  return std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}

__global__ void vectors_kernel(const Mamba3BwdArgs args, const GradientPlan plan, const float* workspace) {
  const std::int64_t at = thread_of_grid();
  if (at < plan.vector_elements) add_vector<DeviceIo>(args, plan, workspace, at);
}

__global__ void sums_kernel(const Mamba3BwdArgs args, const GradientPlan plan, float* workspace) {
  const std::int64_t at = thread_of_grid();
  if (at < args.in.scan.nheads * plan.sums.count)
    add_sums(args, plan, workspace, at / plan.sums.count, static_cast<int>(at % plan.sums.count));
}

__global__ void ranks_kernel(const Mamba3BwdArgs args, const GradientPlan plan, const float* workspace) {
  const std::int64_t at = thread_of_grid();
  const int width = plan.headdim + 1;
  if (at < args.in.scan.nheads * width)
    add_ranks(args, plan, workspace, at / width, static_cast<int>(at % width));
}

std::optional<std::string> unsupported(const Problem& problem) {
  const GradientPlan plan{Mamba3(problem)};
  return grid_too_large({ceil_div(plan.vector_elements, kGradientThreads)},
                        std::to_string(kGradientThreads) + " elements of dQ");
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* workspace) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-chunked-f32 " + *reason);
  const Mamba3BwdArgs args = bind_mamba3_bwd(problem, tensors);
  const GradientPlan plan(args.in.scan);
  auto* const room = static_cast<float*>(workspace);
  const dim3 threads(kGradientThreads);
  const auto blocks_of = [](std::int64_t count) { return ceil_div(count, kGradientThreads); };
  const Launch sums =
      launch_of(sums_kernel, blocks_of(args.in.scan.nheads * plan.sums.count), threads, 0, args, plan, room);
  const Launch ranks = launch_of(ranks_kernel, blocks_of(args.in.scan.nheads * (plan.headdim + 1)), threads,
                                 0, args, plan, room);
  const Launch heads = launch_of(gradients_kernel, plan.blocks, threads, 0, args, plan, room);
  const Launch vectors =
      launch_of(vectors_kernel, blocks_of(plan.vector_elements), threads, 0, args, plan, room);
  return [=](void* stream) {
    for (const Launch* each : {&heads, &vectors, &sums, &ranks}) (*each)(stream);
  };
}

Implementation chunked(const char* op) {
  return with_f32_copies({.name = "cuda-chunked-f32",
                          .op = op,
                          .device = DeviceKind::cuda,
                          .summary = "chunks as small products with f32 multiply-adds; every size and option",
                          .unsupported = unsupported,
                          .workspace_bytes =
                              [](const Problem& problem) {
                                return static_cast<std::size_t>(GradientPlan{Mamba3(problem)}.floats) *
                                       sizeof(float);
                              },
                          .bind = bind});
}

const Registration siso(chunked("mamba3_siso_bwd"));
const Registration mimo(chunked("mamba3_mimo_bwd"));

}  // namespace
}  // namespace ssmbench::mamba3::chunked_bwd
