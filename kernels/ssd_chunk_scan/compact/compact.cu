// The small kernels of cuda-chunked-f32: their host side.

#include "kernels/ssd_chunk_scan/compact/compact.h"

#include <algorithm>

#include "base/errors.h"
#include "kernels/ssd_chunk_scan/bind.h"
#include "kernels/ssd_chunk_scan/compact/kernel.cuh"
#include "ops/ssd_chunk_scan/sequences.h"

namespace ssmbench {
namespace {

CompactPlan plan_of(const SsdChunkScan& scan) {
  return plan_compact(scan.batch, scan.seqlen, scan.nheads, scan.headdim, scan.dstate);
}

}  // namespace

std::optional<std::string> compact_unsupported(const Problem& problem) {
  if (SsdSequences(problem).packed) return "supports cu_seqlens on GPUs with more shared memory only";
  if (SsdSequences(problem).state_dtype != DType::f32)
    return "supports state_dtype on GPUs with more shared memory only";
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
  return [=](void* stream) { launch_compact(args, plan, workspace, static_cast<cudaStream_t>(stream)); };
}

}  // namespace ssmbench
