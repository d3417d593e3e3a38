// cuda-chunked backward: registration, and what cuda-chunked-f32 shares on the host. Kernels, in the order
// they run:
//
//   states.cuh     Δ and decays of all steps; the states entering all chunks, walking forward; the
//                  gradients of the states leaving them, walking backward
//   gradients.cuh  one block per chunk: every gradient; then ddt from its sums
//   sums.cuh       sums over batch, time and slices of heads
//
// Chunks have 64 steps whatever chunk_size says: the weights of a chunk are a 64 × 64 tile then.
// Source of the decomposition: Dao & Gu, "Transformers are SSMs" (2024), section 6.

#include <algorithm>
#include <string>

#include "kernels/ssd_chunk_scan/chunked_bwd/launch.cuh"
#include "kernels/ssd_chunk_scan/chunked_work.h"

namespace ssmbench {

extern template void launch_chunked_bwd<float>(const SsdBwdArgs&, const ChunkedBwdPlan&,
                                               const ChunkedBwdWorkspace&, cudaStream_t);
extern template void launch_chunked_bwd<__half>(const SsdBwdArgs&, const ChunkedBwdPlan&,
                                                const ChunkedBwdWorkspace&, cudaStream_t);
extern template void launch_chunked_bwd<__nv_bfloat16>(const SsdBwdArgs&, const ChunkedBwdPlan&,
                                                       const ChunkedBwdWorkspace&, cudaStream_t);

namespace {

ChunkedBwdPlan plan_of(const Problem& problem) {
  const SsdChunkScan scan(problem);
  int skip_sums = 0;
  if (scan.skip == SsdSkip::head) skip_sums = 1;
  if (scan.skip == SsdSkip::headdim) skip_sums = static_cast<int>(scan.headdim);
  return plan_chunked_bwd(scan.batch, scan.seqlen, scan.nheads, scan.headdim, scan.dstate, scan.groups,
                          skip_sums, problem.dtype() == DType::f32 ? 4 : 2, problem.dtype() == DType::f16);
}

}  // namespace

std::optional<std::string> chunked_bwd_unsupported(const Problem& problem) {
  const SsdChunkScan scan(problem);
  const ChunkedBwdPlan plan = plan_of(problem);
  const std::int64_t heads =
      scan.nheads * std::max<std::int64_t>(plan.chunks, plan.headdim_tiles * plan.dstate_tiles);
  if (scan.batch > kMaxGridX / heads ||
      projections_blocks(scan.batch, scan.seqlen, scan.groups, scan.dstate) > kMaxGridX)
    return "needs at most 2147483647 blocks: one per batch, head and " + std::to_string(kSsdTile) + " steps";
  return std::nullopt;
}

std::size_t chunked_bwd_workspace_bytes(const Problem& problem) {
  return plan_of(problem).bytes;
}

Launch bind_chunked_bwd(const Problem& problem, const TensorSet& tensors, void* workspace,
                        ChunkedBwdLaunch launch) {
  if (auto reason = chunked_bwd_unsupported(problem)) throw ContractError(*reason);
  const SsdBwdArgs args = bind_ssd_bwd(problem, tensors);
  const ChunkedBwdPlan plan = plan_of(problem);
  auto* const base = static_cast<unsigned char*>(workspace);
  const ChunkedBwdWorkspace places{.steps = reinterpret_cast<float*>(base + plan.steps),
                                   .states = base + plan.states,
                                   .dstates = base + plan.dstates,
                                   .unscales = reinterpret_cast<float*>(base + plan.unscales),
                                   .flows = reinterpret_cast<float*>(base + plan.flows),
                                   .head_sums = reinterpret_cast<float*>(base + plan.head_sums),
                                   .projections = reinterpret_cast<float*>(base + plan.projections)};
  return [=](void* stream) { launch(args, plan, places, static_cast<cudaStream_t>(stream)); };
}

namespace {

Launch bind(const Problem& problem, const TensorSet& tensors, void* workspace) {
  const ChunkedBwdLaunch launch = with_io_type(problem.dtype(), []<class T>(std::type_identity<T>) {
    return static_cast<ChunkedBwdLaunch>(launch_chunked_bwd<T>);
  });
  return bind_chunked_bwd(problem, tensors, workspace, launch);
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
     .unsupported = chunked_bwd_unsupported,
     .workspace_bytes = chunked_bwd_workspace_bytes,
     .work = ssd_bwd_tensor_work,
     .bind = bind}};

}  // namespace
}  // namespace ssmbench
