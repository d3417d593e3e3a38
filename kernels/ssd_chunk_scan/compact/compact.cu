// The small kernels of cuda-chunked-f32: their host side and instantiations.

#include "kernels/ssd_chunk_scan/compact/compact.h"

#include <algorithm>

#include "kernels/ssd_chunk_scan/bind.h"
#include "kernels/ssd_chunk_scan/compact/kernel.cuh"
#include "ops/ssd_chunk_scan/sequences.h"

namespace ssmbench {
namespace {

using CompactLaunch = void (*)(const SsdArgs& args, const CompactPlan& plan, void* workspace,
                               cudaStream_t stream);

CompactPlan plan_of(const SsdChunkScan& scan) {
  return plan_compact(scan.batch, scan.seqlen, scan.nheads, scan.headdim, scan.dstate);
}

CompactLaunch launch_for(DType io) {
  switch (io) {
    case DType::f16:
      return launch_compact<__half>;
    case DType::bf16:
      return launch_compact<__nv_bfloat16>;
    default:
      return launch_compact<CompactF32>;
  }
}

}  // namespace

std::optional<std::string> compact_unsupported(const Problem& problem) {
  if (SsdSequences(problem).packed) return "supports cu_seqlens in f32 only";
  if (SsdSequences(problem).state_dtype != DType::f32) return "supports state_dtype in f32 only";
  const SsdChunkScan scan(problem);
  const CompactPlan plan = plan_of(scan);
  const std::int64_t per_head = plan.headdim_tiles * std::max<std::int64_t>(plan.chunks, plan.dstate_tiles);
  if (scan.nheads > kMaxGridX / per_head || scan.batch > kMaxGridX / (scan.nheads * per_head))
    return "needs at most 2147483647 blocks: one per batch, head, 32 steps and 32 of headdim";
  return std::nullopt;
}

std::size_t compact_workspace_bytes(const Problem& problem) {
  return plan_of(SsdChunkScan(problem)).bytes;
}

Launch bind_compact(const Problem& problem, const TensorSet& tensors, void* workspace) {
  if (auto reason = compact_unsupported(problem)) throw ContractError(*reason);
  const SsdArgs args = bind_ssd(problem, tensors);
  const CompactPlan plan = plan_of(SsdChunkScan(problem));
  return [=, launch = launch_for(problem.dtype())](void* stream) {
    launch(args, plan, workspace, static_cast<cudaStream_t>(stream));
  };
}

}  // namespace ssmbench
