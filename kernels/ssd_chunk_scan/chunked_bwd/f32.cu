// cuda-chunked-f32 backward: registration, and its kernels, which are those of cuda-chunked with all products
// as f32 multiply-adds.

#include "kernels/ssd_chunk_scan/chunked_bwd/launch.cuh"
#include "kernels/ssd_chunk_scan/chunked_work.h"

namespace ssmbench {
namespace {

std::optional<std::string> unsupported(const Problem& problem) {
  if (problem.dtype() != DType::f32)
    return "is for f32 tensors only: the products of others lose nothing on tensor cores";
  return chunked_bwd_unsupported(problem);
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* workspace) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-chunked-f32 " + *reason);
  return bind_chunked_bwd(problem, tensors, workspace, launch_chunked_bwd<PlainF32>);
}

const Registration registration{{.name = "cuda-chunked-f32",
                                 .op = "ssd_chunk_scan_bwd",
                                 .device = DeviceKind::cuda,
                                 .summary = "cuda-chunked with f32 multiply-adds instead of tensor cores",
                                 .unsupported = unsupported,
                                 .workspace_bytes = chunked_bwd_workspace_bytes,
                                 .work = ssd_bwd_chunked_work,
                                 .bind = bind}};

}  // namespace
}  // namespace ssmbench
