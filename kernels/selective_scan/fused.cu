// cuda-fused: registration and launch. The kernel, with the picture of its threads, is in fused_kernel.cuh;
// its instantiations are in fused_f32.cu, fused_f16.cu and fused_bf16.cu.

#include "kernels/common/launch.cuh"
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
  return staged::too_many_blocks(scan, plan_of(scan));
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-fused " + *reason);
  const ScanArgs args = bind_scan(problem, tensors);
  const SelectiveScan scan(problem);
  const FusedPlan plan = plan_of(scan);
  const FusedKernel kernel = with_io_type(problem.dtype(), [&]<class Io>(std::type_identity<Io>) {
    return fused_kernel_for<Io>(scan.method, scan.complex);
  });
  return launch_of(kernel, staged::blocks_of(args, plan), plan.threads(), plan.shared_bytes(), args, plan,
                   method_parameters(scan.method));
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
