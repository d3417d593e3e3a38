// cuda-chunked and cuda-hopper for the gradients of Mamba-3's SISO scan: registration. In f32 and f16 cuda-chunked has
// products in tf32, of tensors in f32, to which those of f16 are copied: its 10 bits of fraction are those of f16, and its
// range is that of f32, which gradients need.

#include "base/errors.h"
#include "kernels/common/f32_copies.h"
#include "kernels/mamba3/hopper_bwd/launch.h"
#include "kernels/mamba3/tensor_bwd/launch.cuh"
#include "kernels/ssd_chunk_scan/shared_memory.h"

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
  const int bytes = static_cast<int>(sizeof(GradientShared<Siso>)) +
                    (Mamba3(problem).dstate > kSteps ? GradientTiles<float, Siso, 2>::kBytes
                                                     : GradientTiles<float, Siso, 1>::kBytes);
  if (!shared_memory_fits(bytes)) return "needs more shared memory for f32 tiles";
  return {};
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

Implementation chunked_in_bf16() {
  return {.name = "cuda-chunked",
          .op = "mamba3_siso_bwd",
          .device = DeviceKind::cuda,
          .summary = "chunks of 64 steps by SSD's products on tensor cores, q and k rotated beforehand",
          .arithmetic =
              [](DType io) {
                if (io == DType::bf16) return kArithmetic;
                return Arithmetic{.math = Math::tf32, .state_dtype = DType::f32};
              },
          .unsupported = unsupported_size,
          .workspace_bytes = chunked_workspace_bytes<Bf16>,
          .bind = bind_chunked<Bf16>};
}

Implementation chunked() {
  Implementation all = chunked_in_bf16();
  Implementation of_f32 = all;
  of_f32.unsupported = unsupported_in_tf32;
  of_f32.workspace_bytes = chunked_workspace_bytes<float>;
  of_f32.bind = bind_chunked<float>;
  const auto for_dtype =
      [in_bf16 = all, in_tf32 = with_f32_copies(of_f32)](const Problem& problem) -> const Implementation& {
    return problem.dtype() == DType::bf16 ? in_bf16 : in_tf32;
  };
  all.unsupported = [=](const Problem& problem) { return for_dtype(problem).unsupported(problem); };
  all.workspace_bytes = [=](const Problem& problem) { return for_dtype(problem).workspace_bytes(problem); };
  all.bind = [=](const Problem& problem, const TensorSet& tensors, void* workspace) {
    return for_dtype(problem).bind(problem, tensors, workspace);
  };
  return all;
}

const Registration of_chunked{chunked()};

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
