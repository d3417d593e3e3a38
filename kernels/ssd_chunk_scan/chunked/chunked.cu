// cuda-chunked: registration. The kernel, with the picture of its warps, is in kernel.cuh; its
// instantiations are in tensor_cores.cu.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <stdexcept>

#include "kernels/ssd_chunk_scan/bind.h"
#include "kernels/ssd_chunk_scan/chunked/launch.h"

namespace ssmbench {

template <class Io>
struct HalfProducts;
struct Tf32Products;
extern template ChunkedVariant chunked_variant<HalfProducts<__nv_bfloat16>>(int states);
extern template ChunkedVariant chunked_variant<HalfProducts<__half>>(int states);
extern template ChunkedVariant chunked_variant<Tf32Products>(int states);

namespace ssd_chunked {
namespace {

ChunkedVariant variant_for(DType io, int states) {
  switch (io) {
    case DType::f32:
      return chunked_variant<Tf32Products>(states);
    case DType::f16:
      return chunked_variant<HalfProducts<__half>>(states);
    case DType::bf16:
      return chunked_variant<HalfProducts<__nv_bfloat16>>(states);
    default:
      throw std::logic_error("not an io dtype");
  }
}

Arithmetic arithmetic(DType io) {
  return {.math = io == DType::f32 ? Math::tf32 : io == DType::f16 ? Math::f16 : Math::bf16};
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* workspace) {
  const int states = padded_states(problem.size("dstate"));
  return chunked_launch(problem, tensors, workspace, variant_for(problem.dtype(), states));
}

const Registration registration{
    {.name = "cuda-chunked",
     .op = "ssd_chunk_scan_fwd",
     .device = DeviceKind::cuda,
     .summary = "chunks of 64 steps as products on tensor cores in one pass, state in registers",
     .arithmetic = arithmetic,
     .unsupported = chunked_unsupported,
     .workspace_bytes = chunked_workspace_bytes,
     .bind = bind}};

}  // namespace
}  // namespace ssd_chunked
}  // namespace ssmbench
