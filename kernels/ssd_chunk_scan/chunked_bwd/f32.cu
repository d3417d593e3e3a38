// cuda-chunked-f32 backward: registration, and its kernels, which are those of cuda-chunked with all products
// as f32 multiply-adds. f32 tensors take tiles as large as those of cuda-chunked where a block may have the
// shared memory; 16-bit tensors, and GPUs with less, take small ones.

#include "kernels/ssd_chunk_scan/bind.h"
#include "kernels/ssd_chunk_scan/chunked_bwd/chunked_bwd.h"
#include "kernels/ssd_chunk_scan/chunked_bwd/kernel.cuh"
#include "kernels/ssd_chunk_scan/shared_memory.h"

namespace ssmbench::chunked_bwd_f32 {
namespace {

ChunkedBwdVariant variant_of(const Problem& problem) {
  constexpr int kWideBytes =
      gradients_shared_bytes<WideF32>(1) + static_cast<int>(sizeof(GradientShared<WideF32>));
  switch (problem.dtype()) {
    case DType::f16:
      return {launch_chunked_bwd<CompactF32, __half>, tile_kind_of<CompactF32>()};
    case DType::bf16:
      return {launch_chunked_bwd<CompactF32, __nv_bfloat16>, tile_kind_of<CompactF32>()};
    default:
      if (shared_memory_fits(kWideBytes)) return {launch_chunked_bwd<WideF32>, tile_kind_of<WideF32>()};
      return {launch_chunked_bwd<CompactF32>, tile_kind_of<CompactF32>()};
  }
}

std::optional<std::string> unsupported(const Problem& problem) {
  return chunked_bwd_unsupported(problem, variant_of(problem).tiles);
}

std::size_t workspace_bytes(const Problem& problem) {
  return chunked_bwd_workspace_bytes(problem, variant_of(problem).tiles);
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* workspace) {
  return bind_chunked_bwd(problem, tensors, workspace, variant_of(problem));
}

const Registration registration{{.name = "cuda-chunked-f32",
                                 .op = "ssd_chunk_scan_bwd",
                                 .device = DeviceKind::cuda,
                                 .summary = "cuda-chunked with f32 multiply-adds instead of tensor cores",
                                 .unsupported = unsupported,
                                 .workspace_bytes = workspace_bytes,
                                 .bind = bind}};

}  // namespace
}  // namespace ssmbench::chunked_bwd_f32
