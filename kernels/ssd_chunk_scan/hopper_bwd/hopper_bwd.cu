// cuda-hopper backward: registration. The picture of the kernel is in kernel.cuh.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <array>

#include "kernels/common/hopper/device.h"
#include "kernels/ssd_chunk_scan/bind.h"
#include "kernels/ssd_chunk_scan/chunked_bwd/chunked_bwd.h"
#include "kernels/ssd_chunk_scan/hopper_bwd/launch.h"

namespace ssmbench {

extern template void launch_gradient_sums<__half, __half>(const SsdBwdArgs&, const ChunkedBwdPlan&,
                                                          const ChunkedBwdWorkspace&, cudaStream_t);
extern template void launch_gradient_sums<__nv_bfloat16, __nv_bfloat16>(const SsdBwdArgs&,
                                                                        const ChunkedBwdPlan&,
                                                                        const ChunkedBwdWorkspace&,
                                                                        cudaStream_t);

}  // namespace ssmbench

namespace ssmbench::ssd_hopper_bwd {

extern template Variant variant_for<__half>(int states, bool gated);
extern template Walks make_walks<__half>(const SsdBwdArgs&, const ChunkedBwdPlan&, const ChunkedBwdWorkspace&,
                                         void*);
extern template void launch_walks<__half>(const Walks&, cudaStream_t);
extern template Variant variant_for<__nv_bfloat16>(int states, bool gated);
extern template Walks make_walks<__nv_bfloat16>(const SsdBwdArgs&, const ChunkedBwdPlan&,
                                                const ChunkedBwdWorkspace&, void*);
extern template void launch_walks<__nv_bfloat16>(const Walks&, cudaStream_t);

namespace {

constexpr std::int64_t kMaxStates = 128;

TileKind tiles_of(const Problem& problem) {
  return chunked_bwd_tiles(problem.dtype());
}

std::optional<std::string> unsupported(const Problem& problem) {
  const SsdChunkScan scan(problem);
  if (problem.dtype() == DType::f32) return "needs tensors of 16-bit elements";
  if (scan.headdim % 8 != 0 || scan.dstate % 8 != 0)
    return "needs headdim and dstate that are multiples of 8: rows of 16-byte vectors";
  if (scan.headdim > kSteps) return "needs headdim of at most 64: a head is one tile";
  if (scan.dstate > kMaxStates)
    return "needs dstate of at most 128: gradients of B and C are held in registers";
  if (scan.seqlen > 2147483647 - kSteps) return "needs at most 2147483583 steps";
  if (auto reason = chunked_bwd_unsupported(problem, tiles_of(problem))) return reason;
  if (hopper::wrong_device()) return "needs a GPU of compute capability 9.0";
  return {};
}

/// That of cuda-chunked, and behind it the states that walks hand on.
std::size_t workspace_bytes(const Problem& problem) {
  const SsdChunkScan scan(problem);
  const ChunkedBwdPlan plan = chunked_bwd_plan(problem, tiles_of(problem));
  const std::int64_t heads = scan.batch * scan.nheads;
  return plan.bytes + walk_handed_layout(heads, walk_parts(heads, plan.chunks), 64 * plan.dstate_tiles).bytes;
}

template <class Io>
Launch launch_of(const Problem& problem, const SsdBwdArgs& bwd, void* workspace) {
  const ChunkedBwdPlan plan = chunked_bwd_plan(problem, tiles_of(problem));
  const ChunkedBwdWorkspace arrays = chunked_bwd_arrays(plan, workspace);
  const Variant variant = variant_for<Io>(64 * plan.dstate_tiles, bwd.in.z != nullptr);
  check_cuda(cudaFuncSetAttribute(variant.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  variant.shared_bytes));
  const GradientArgs args = make_args(bwd, plan, arrays);
  const Walks walks = make_walks<Io>(bwd, plan, arrays, static_cast<unsigned char*>(workspace) + plan.bytes);
  return [=](void* stream) {
    auto* const on = static_cast<cudaStream_t>(stream);
    launch_walks<Io>(walks, on);
    launch(variant, args, on);
    launch_gradient_sums<Io, Io>(args.bwd, args.plan, args.workspace, on);
  };
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* workspace) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-hopper " + *reason);
  const SsdBwdArgs bwd = bind_ssd_bwd(problem, tensors);
  const SsdInputs& in = bwd.in;
  for (const void* tensor : std::array{in.x, in.B, in.C, in.z, bwd.dout, static_cast<const void*>(bwd.dx),
                                       static_cast<const void*>(bwd.dz), static_cast<const void*>(bwd.dB),
                                       static_cast<const void*>(bwd.dC)})
    if (reinterpret_cast<std::uintptr_t>(tensor) % 16 != 0)
      throw ContractError("cuda-hopper needs tensors that are aligned to 16 bytes");
  return problem.dtype() == DType::f16 ? launch_of<__half>(problem, bwd, workspace)
                                       : launch_of<__nv_bfloat16>(problem, bwd, workspace);
}

const Registration registration{
    {.name = "cuda-hopper",
     .op = "ssd_chunk_scan_bwd",
     .device = DeviceKind::cuda,
     .summary =
         "all gradients by chunks of 64 steps, products by wgmma, fed by TMA; for compute capability 9.0",
     .arithmetic =
         [](DType io) {
           return io == DType::f16 ? Arithmetic{.math = Math::f16, .state_dtype = DType::f16}
                                   : Arithmetic{.math = Math::bf16, .state_dtype = DType::bf16};
         },
     .unsupported = unsupported,
     .workspace_bytes = workspace_bytes,
     .bind = bind}};

}  // namespace
}  // namespace ssmbench::ssd_hopper_bwd
