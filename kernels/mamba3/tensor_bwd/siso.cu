// cuda-chunked and cuda-hopper for the gradients of Mamba-3's SISO scan: registration.

#include "base/errors.h"
#include "kernels/mamba3/hopper_bwd/launch.h"
#include "kernels/mamba3/tensor_bwd/launch.cuh"

namespace ssmbench::mamba3_bwd::siso {
namespace {

constexpr Products kChunked{HeadSums::kernel, false, chunked_states, chunked_gradients<Siso>};
constexpr Products kHopper{HeadSums::block, true, hopper_states, hopper_gradients, packed_sequences};

std::optional<std::string> unsupported_by_chunked(const Problem& problem) {
  if (auto reason = unsupported_size(problem)) return reason;
  return unsupported_packing(problem);
}

std::optional<std::string> unsupported_by_hopper(const Problem& problem) {
  if (auto reason = unsupported_size(problem)) return reason;
  if (!Mamba3(problem).interleaved) return "needs rotary_pairing interleaved: registers are short";
  return unsupported_device();
}

Launch bind_chunked(const Problem& problem, const TensorSet& tensors, void* workspace) {
  if (auto reason = unsupported_by_chunked(problem)) throw ContractError("cuda-chunked " + *reason);
  return bind_with<Siso>(bind_aligned(problem, tensors), workspace, kChunked);
}

Launch bind_hopper(const Problem& problem, const TensorSet& tensors, void* workspace) {
  if (auto reason = unsupported_by_hopper(problem)) throw ContractError("cuda-hopper " + *reason);
  return bind_with<Siso>(bind_aligned(problem, tensors), workspace, kHopper);
}

const Registration chunked{
    {.name = "cuda-chunked",
     .op = "mamba3_siso_bwd",
     .device = DeviceKind::cuda,
     .summary = "chunks of 64 steps by SSD's products on tensor cores, q and k rotated beforehand",
     .arithmetic = [](DType) { return kArithmetic; },
     .unsupported = unsupported_by_chunked,
     .workspace_bytes = chunked_workspace_bytes,
     .bind = bind_chunked}};

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
