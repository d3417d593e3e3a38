// cuda-chunked-f32: registration, and its kernels. cuda-chunked rounds the operands of products to tf32 for
// f32 tensors; this is the same kernel with all products as f32 multiply-adds.

#include "kernels/ssd_chunk_scan/chunked/kernel.cuh"
#include "kernels/ssd_chunk_scan/chunked_work.h"
#include "model/errors.h"

namespace ssmbench {
namespace {

std::optional<std::string> unsupported(const Problem& problem) {
  if (problem.dtype() != DType::f32)
    return "is for f32 tensors only: the products of others lose nothing on tensor cores";
  return chunked_unsupported(problem);
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* workspace) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-chunked-f32 " + *reason);
  const int states = padded_states(problem.size("dstate"));
  return chunked_launch(problem, tensors, workspace, chunked_variant<F32Products>(states));
}

const Registration registration{{.name = "cuda-chunked-f32",
                                 .op = "ssd_chunk_scan_fwd",
                                 .device = DeviceKind::cuda,
                                 .summary = "cuda-chunked with f32 multiply-adds instead of tensor cores",
                                 .unsupported = unsupported,
                                 .workspace_bytes = chunked_workspace_bytes,
                                 .work = ssd_chunked_work,
                                 .bind = bind}};

}  // namespace
}  // namespace ssmbench
