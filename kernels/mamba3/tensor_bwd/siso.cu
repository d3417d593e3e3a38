// cuda-chunked and cuda-hopper for the gradients of Mamba-3's SISO scan: registration.

#include "kernels/common/hopper/device.h"
#include "kernels/mamba3/hopper_bwd/launch.h"
#include "kernels/mamba3/tensor_bwd/launch.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/launch.h"

namespace ssmbench::ssd_hopper_bwd {
extern template Walks make_walks<__nv_bfloat16>(const SsdBwdArgs&, const ChunkedBwdPlan&,
                                                const ChunkedBwdWorkspace&, void*);
extern template void launch_walks_alone<__nv_bfloat16>(const Walks&, cudaStream_t);
}  // namespace ssmbench::ssd_hopper_bwd

namespace ssmbench::mamba3_bwd::siso {
namespace {

HandedLayout handed_of(const Plan& plan) {
  const std::int64_t heads = plan.batch * plan.nheads;
  return ssd_hopper_bwd::walk_handed_layout(heads, ssd_hopper_bwd::walk_parts(heads, plan.chunks),
                                            kSteps * plan.dstate_tiles);
}

Launch hopper_states(const SsdBwdArgs& ssd, const Plan& plan, const Workspace& work, void* handed) {
  ChunkedBwdPlan cut{};
  static_cast<ChunkGrid&>(cut) = plan;
  ChunkedBwdWorkspace arrays{};
  arrays.steps = work.steps;
  arrays.states = work.states;
  arrays.dstates = work.dstates;
  arrays.unscales = work.flows;  // of f16 alone
  const auto walks = ssd_hopper_bwd::make_walks<Bf16>(ssd, cut, arrays, handed);
  return [=](void* stream) {
    ssd_hopper_bwd::launch_walks_alone<Bf16>(walks, static_cast<cudaStream_t>(stream));
  };
}

std::optional<std::string> unsupported_by_hopper(const Problem& problem) {
  if (auto reason = unsupported_size(problem)) return reason;
  if (!Mamba3(problem).interleaved)
    return "needs rotary_pairing interleaved: it stores dQ and dK from the registers of threads that turn "
           "neighbouring states";
  if (hopper::wrong_device()) return "needs a GPU of compute capability 9.0";
  return {};
}

constexpr Products kChunked{HeadSums::kernel, chunked_states, chunked_gradients<Siso>};
constexpr Products kHopper{HeadSums::block, hopper_states, hopper_gradients};
constexpr Arithmetic kArithmetic{.math = Math::bf16, .state_dtype = DType::bf16};

Launch bind_chunked(const Problem& problem, const TensorSet& tensors, void* workspace) {
  if (auto reason = unsupported_size(problem)) throw ContractError("cuda-chunked " + *reason);
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
     .unsupported = unsupported_size,
     .workspace_bytes = [](const Problem& problem) { return Plan(Mamba3(problem), HeadSums::kernel).bytes; },
     .bind = bind_chunked}};

const Registration on_hopper{
    {.name = "cuda-hopper",
     .op = "mamba3_siso_bwd",
     .device = DeviceKind::cuda,
     .summary = "chunks of 64 steps, products by wgmma, fed by TMA; heads of a group summed in registers",
     .arithmetic = [](DType) { return kArithmetic; },
     .unsupported = unsupported_by_hopper,
     .workspace_bytes =
         [](const Problem& problem) {
           const Plan plan(Mamba3(problem), HeadSums::block);
           return plan.bytes + handed_of(plan).bytes;
         },
     .bind = bind_hopper}};

}  // namespace
}  // namespace ssmbench::mamba3_bwd::siso
