// cuda-fused: registration and launch. The kernel, with the picture of its threads, is in fused_kernel.cuh;
// its instantiations are in fused_f32.cu, fused_f16.cu and fused_bf16.cu.

#include <string>

#include "device/cuda_check.h"
#include "kernels/selective_scan/fused_kernel.cuh"

namespace ssmbench {

extern template FusedKernel fused_kernel_for<float>(MethodId method, bool complex);
extern template FusedKernel fused_kernel_for<__half>(MethodId method, bool complex);
extern template FusedKernel fused_kernel_for<__nv_bfloat16>(MethodId method, bool complex);

namespace {

FusedPlan plan_of(const SelectiveScan& scan) {
  return plan_fused(scan.channels_per_group(), scan.dstate, scan.complex);
}

std::optional<std::string> unsupported(const Problem& problem) {
  if (auto reason = not_diagonal(problem)) return reason;
  const SelectiveScan scan(problem);
  const FusedPlan plan = plan_of(scan);
  if (scan.batch > kMaxGridX / (scan.groups * plan.blocks_per_group))
    return "needs at most 2147483647 blocks: one per batch and " + std::to_string(plan.channels()) +
           " channels";
  return std::nullopt;
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-fused " + *reason);
  const ScanArgs args = bind_scan(problem, tensors);
  const SelectiveScan scan(problem);
  const FusedPlan plan = plan_of(scan);
  const MethodParameters method = method_parameters(scan.method);
  const FusedKernel kernel = with_io_type(problem.dtype(), [&]<class Io>(std::type_identity<Io>) {
    return fused_kernel_for<Io>(scan.method, scan.complex);
  });
  const auto blocks = static_cast<unsigned>(args.batch * args.groups * plan.blocks_per_group);
  const auto threads = static_cast<unsigned>(plan.threads());
  const auto shared_bytes = static_cast<std::size_t>(plan.shared_bytes());
  return [=](void* stream) {
    kernel<<<blocks, threads, shared_bytes, static_cast<cudaStream_t>(stream)>>>(args, plan, method);
    check_cuda(cudaGetLastError());
  };
}

const Registration registration{
    {.name = "cuda-fused",
     .op = "selective_scan_fwd",
     .device = DeviceKind::cuda,
     .summary = "every method, real and complex; sequential in time, states in registers",
     .unsupported = unsupported,
     .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
     .work = scan_work,
     .bind = bind}};

}  // namespace
}  // namespace ssmbench
