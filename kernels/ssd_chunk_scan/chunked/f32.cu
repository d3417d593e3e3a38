// cuda-chunked-f32: registration, and its kernels. cuda-chunked rounds the operands of products to tf32 for
// f32 tensors; this is the same kernel with all products as f32 multiply-adds. GPUs with too little shared
// memory for it take the small kernels (compact/kernel.cuh). Tensors in 16 bits are copied to f32.

#include "kernels/common/f32_copies.h"
#include "kernels/ssd_chunk_scan/bind.h"
#include "kernels/ssd_chunk_scan/chunked/kernel.cuh"
#include "kernels/ssd_chunk_scan/chunked/launch.h"
#include "kernels/ssd_chunk_scan/compact/compact.h"
#include "kernels/ssd_chunk_scan/shared_memory.h"

namespace ssmbench::chunked_f32 {
namespace {

ChunkedVariant variant_of(const Problem& problem) {
  return chunked_variant<F32Products>(padded_states(problem.size("dstate")));
}

bool is_compact(const Problem& problem) {
  return !shared_memory_fits(variant_of(problem).shared_bytes);
}

std::optional<std::string> unsupported(const Problem& problem) {
  return is_compact(problem) ? compact_unsupported(problem) : chunked_unsupported(problem);
}

std::size_t workspace_bytes(const Problem& problem) {
  return is_compact(problem) ? compact_workspace_bytes(problem) : chunked_workspace_bytes(problem);
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* workspace) {
  if (is_compact(problem)) return bind_compact(problem, tensors, workspace);
  return chunked_launch(problem, tensors, workspace, variant_of(problem));
}

const Registration registration{
    with_f32_copies({.name = "cuda-chunked-f32",
                     .op = "ssd_chunk_scan_fwd",
                     .device = DeviceKind::cuda,
                     .summary = "cuda-chunked with f32 multiply-adds instead of tensor cores",
                     .unsupported = unsupported,
                     .workspace_bytes = workspace_bytes,
                     .bind = bind})};

}  // namespace
}  // namespace ssmbench::chunked_f32
