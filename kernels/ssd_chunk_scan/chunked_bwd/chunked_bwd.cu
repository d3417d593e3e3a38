// cuda-chunked backward: registration, and what cuda-chunked-f32 shares on the host. The picture of the
// kernels is in kernel.cuh.

#include <algorithm>
#include <string>

#include "base/errors.h"
#include "kernels/ssd_chunk_scan/bind.h"
#include "kernels/ssd_chunk_scan/chunked_bwd/chunked_bwd.h"
#include "kernels/ssd_chunk_scan/chunked_bwd/kernel.cuh"

namespace ssmbench {

extern template void launch_chunked_bwd<float>(const SsdBwdArgs&, const ChunkedBwdPlan&,
                                               const ChunkedBwdWorkspace&, cudaStream_t);
extern template void launch_chunked_bwd<__half>(const SsdBwdArgs&, const ChunkedBwdPlan&,
                                                const ChunkedBwdWorkspace&, cudaStream_t);
extern template void launch_chunked_bwd<__nv_bfloat16>(const SsdBwdArgs&, const ChunkedBwdPlan&,
                                                       const ChunkedBwdWorkspace&, cudaStream_t);

ChunkedBwdPlan chunked_bwd_plan(const Problem& problem, const TileKind& tiles) {
  const SsdChunkScan scan(problem);
  int skip_sums = 0;
  if (scan.skip == SsdSkip::head) skip_sums = 1;
  if (scan.skip == SsdSkip::headdim) skip_sums = static_cast<int>(scan.headdim);
  return plan_chunked_bwd(scan.batch, scan.seqlen, scan.nheads, scan.headdim, scan.dstate, scan.groups,
                          skip_sums, tiles);
}

TileKind chunked_bwd_tiles(DType dtype) {
  return {.side = 64, .step_rows = 4, .element_bytes = size_of(dtype), .scaled_states = dtype == DType::f16};
}

ChunkedBwdWorkspace chunked_bwd_arrays(const ChunkedBwdPlan& plan, void* workspace) {
  auto* const base = static_cast<unsigned char*>(workspace);
  return {.steps = reinterpret_cast<float*>(base + plan.steps),
          .states = base + plan.states,
          .dstates = base + plan.dstates,
          .unscales = reinterpret_cast<float*>(base + plan.unscales),
          .flows = reinterpret_cast<float*>(base + plan.flows),
          .head_sums = reinterpret_cast<float*>(base + plan.head_sums),
          .projections = reinterpret_cast<float*>(base + plan.projections)};
}

std::optional<std::string> chunked_bwd_unsupported(const Problem& problem, const TileKind& tiles) {
  const SsdChunkScan scan(problem);
  const ChunkedBwdPlan plan = chunked_bwd_plan(problem, tiles);
  const std::int64_t heads =
      scan.nheads * std::max<std::int64_t>(plan.chunks, plan.headdim_tiles * plan.dstate_tiles);
  if (scan.batch > kMaxGridX / heads ||
      projections_blocks(scan.batch, scan.seqlen, scan.groups, scan.dstate) > kMaxGridX)
    return "needs at most 2147483647 blocks: one per batch, head and " + std::to_string(plan.side) + " steps";
  return std::nullopt;
}

std::size_t chunked_bwd_workspace_bytes(const Problem& problem, const TileKind& tiles) {
  return chunked_bwd_plan(problem, tiles).bytes;
}

Launch bind_chunked_bwd(const Problem& problem, const TensorSet& tensors, void* workspace,
                        const ChunkedBwdVariant& variant) {
  if (auto reason = chunked_bwd_unsupported(problem, variant.tiles)) throw ContractError(*reason);
  const SsdBwdArgs args = bind_ssd_bwd(problem, tensors);
  const ChunkedBwdPlan plan = chunked_bwd_plan(problem, variant.tiles);
  const ChunkedBwdWorkspace arrays = chunked_bwd_arrays(plan, workspace);
  return [=, launch = variant.launch](void* stream) {
    launch(args, plan, arrays, static_cast<cudaStream_t>(stream));
  };
}

namespace ssd_chunked_bwd {
namespace {

Launch bind(const Problem& problem, const TensorSet& tensors, void* workspace) {
  const ChunkedBwdLaunch launch = with_io_type(problem.dtype(), []<class T>(std::type_identity<T>) {
    return static_cast<ChunkedBwdLaunch>(launch_chunked_bwd<T>);
  });
  return bind_chunked_bwd(problem, tensors, workspace, {launch, chunked_bwd_tiles(problem.dtype())});
}

const Registration registration{
    {.name = "cuda-chunked",
     .op = "ssd_chunk_scan_bwd",
     .device = DeviceKind::cuda,
     .summary = "all gradients by chunks of 64 steps, matrix products on tensor cores",
     .arithmetic =
         [](DType io) {
           switch (io) {
             case DType::f16:
               return Arithmetic{.math = Math::f16, .state_dtype = DType::f16};
             case DType::bf16:
               return Arithmetic{.math = Math::bf16, .state_dtype = DType::bf16};
             default:
               return Arithmetic{.math = Math::tf32, .state_dtype = DType::f32};
           }
         },
     .unsupported =
         [](const Problem& problem) {
           return chunked_bwd_unsupported(problem, chunked_bwd_tiles(problem.dtype()));
         },
     .workspace_bytes =
         [](const Problem& problem) {
           return chunked_bwd_workspace_bytes(problem, chunked_bwd_tiles(problem.dtype()));
         },
     .bind = bind}};

}  // namespace
}  // namespace ssd_chunked_bwd
}  // namespace ssmbench
