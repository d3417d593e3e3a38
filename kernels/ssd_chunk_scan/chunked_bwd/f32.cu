// cuda-chunked-f32 backward: registration, and its kernels, which are those of cuda-chunked with all products
// as f32 multiply-adds. Tiles are as large as those of cuda-chunked where a block may have the shared memory;
// GPUs with less take small ones. Tensors in 16 bits are copied to f32.

#include "kernels/common/f32_copies.h"
#include "kernels/ssd_chunk_scan/bind.h"
#include "kernels/ssd_chunk_scan/chunked_bwd/chunked_bwd.h"
#include "kernels/ssd_chunk_scan/chunked_bwd/kernel.cuh"
#include "kernels/ssd_chunk_scan/shared_memory.h"

namespace ssmbench::chunked_bwd_f32 {
namespace {

ChunkedBwdVariant variant() {
  constexpr int kWideBytes =
      gradients_shared_bytes<WideF32>(1) + static_cast<int>(sizeof(GradientShared<WideF32>));
  if (shared_memory_fits(kWideBytes)) return {launch_chunked_bwd<WideF32>, tile_kind_of<WideF32>()};
  return {launch_chunked_bwd<CompactF32>, tile_kind_of<CompactF32>()};
}

std::optional<std::string> unsupported(const Problem& problem) {
  return chunked_bwd_unsupported(problem, variant().tiles);
}

std::size_t workspace_bytes(const Problem& problem) {
  return chunked_bwd_workspace_bytes(problem, variant().tiles);
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* workspace) {
  return bind_chunked_bwd(problem, tensors, workspace, variant());
}

const Registration registration{
    with_f32_copies({.name = "cuda-chunked-f32",
                     .op = "ssd_chunk_scan_bwd",
                     .device = DeviceKind::cuda,
                     .summary = "cuda-chunked with f32 multiply-adds instead of tensor cores",
                     .unsupported = unsupported,
                     .workspace_bytes = workspace_bytes,
                     .bind = bind})};

}  // namespace
}  // namespace ssmbench::chunked_bwd_f32
