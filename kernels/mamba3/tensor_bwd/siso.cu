// cuda-chunked and cuda-hopper for the gradients of Mamba-3's SISO scan: registration. In f32 and f16 cuda-chunked has
// products in tf32, of tensors in f32, to which those of f16 are copied: its 10 bits of fraction are those of f16, and its
// range is that of f32, which gradients need.

#include "base/errors.h"
#include "kernels/mamba3/hopper_bwd/launch.h"
#include "kernels/mamba3/tensor_bwd/launch.cuh"

namespace ssmbench::mamba3_bwd::siso {
namespace {

constexpr Products kHopper{HeadSums::block, true, hopper_states, hopper_gradients, hopper_sequences};

template <class Element>
constexpr Products kChunked{HeadSums::kernel, false, chunked_states<Element>,
                            chunked_gradients<Element, Siso>};

std::optional<std::string> unsupported_by_hopper(const Problem& problem) {
  if (problem.dtype() != DType::bf16) return "needs bf16 tensors";
  if (auto reason = unsupported_size(problem)) return reason;
  if (!Mamba3(problem).interleaved) return "needs rotary_pairing interleaved: registers are short";
  return unsupported_device();
}

/// Of problems in f32.
std::optional<std::string> unsupported_in_tf32(const Problem& problem) {
  if (auto reason = unsupported_size(problem)) return reason;
  return unsupported_tiles<Siso>(Mamba3(problem));
}

template <class Element>
Launch bind_chunked(const Problem& problem, const TensorSet& tensors, void* workspace) {
  const auto reason =
      sizeof(Element) == sizeof(float) ? unsupported_in_tf32(problem) : unsupported_size(problem);
  if (reason) throw ContractError("cuda-chunked " + *reason);
  return bind_with<Element, Siso>(bind_aligned(problem, tensors), workspace, kChunked<Element>);
}

Launch bind_hopper(const Problem& problem, const TensorSet& tensors, void* workspace) {
  if (auto reason = unsupported_by_hopper(problem)) throw ContractError("cuda-hopper " + *reason);
  return bind_with<Bf16, Siso>(bind_aligned(problem, tensors), workspace, kHopper);
}

const Registration of_chunked{
    for_dtypes({.name = "cuda-chunked",
                .op = "mamba3_siso_bwd",
                .device = DeviceKind::cuda,
                .summary = "chunks of 64 steps by SSD's products on tensor cores, q and k rotated beforehand",
                .arithmetic = arithmetic_of,
                .unsupported = unsupported_size,
                .workspace_bytes = chunked_workspace_bytes<Bf16>,
                .bind = bind_chunked<Bf16>},
               {unsupported_in_tf32, chunked_workspace_bytes<float>, bind_chunked<float>})};

const Registration on_hopper{
    {.name = "cuda-hopper",
     .op = "mamba3_siso_bwd",
     .device = DeviceKind::cuda,
     .summary = "chunks of 64 steps, products by wgmma, fed by TMA; heads of a group summed in registers",
     .arithmetic = [](DType) { return kArithmetic; },
     .unsupported = unsupported_by_hopper,
     .workspace_bytes = hopper_workspace_bytes,
     .bind = bind_hopper}};

}  // namespace
}  // namespace ssmbench::mamba3_bwd::siso
