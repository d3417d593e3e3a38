// cuda-sequential: registration and launch. The picture is in kernel.cuh. Tensors in 16 bits are copied to
// f32.

#include <string>

#include "base/errors.h"
#include "kernels/common/f32_copies.h"
#include "kernels/common/launch.cuh"
#include "kernels/mamba3/bind.h"
#include "kernels/mamba3/sequential/kernel.cuh"

namespace ssmbench::mamba3::sequential {
namespace {

constexpr int kNormThreads = 128;

using Kernel = void (*)(Mamba3Args, SequentialPlan, float*);

Kernel kernel_of(const Mamba3& scan) {
  switch (states_of_thread(scan.dstate)) {
    case 4:
      return sequential_kernel<4>;
    case 8:
      return sequential_kernel<8>;
    case 16:
      return sequential_kernel<16>;
    default:
      return sequential_kernel<32>;
  }
}

std::int64_t norm_blocks(const Mamba3& scan) {
  return ceil_div(scan.batch * scan.seqlen * scan.nheads, kNormThreads / kWarpThreads);
}

std::optional<std::string> unsupported(const Problem& problem) {
  const Mamba3 scan(problem);
  const SequentialPlan plan(scan);
  if (auto reason = grid_too_large({scan.sequences, scan.nheads, plan.slabs},
                                   std::to_string(plan.rows) + " head dims of a sequence"))
    return reason;
  if (!scan.has_norm) return std::nullopt;
  return grid_too_large({norm_blocks(scan)},
                        std::to_string(kNormThreads / kWarpThreads) + " steps of a head");
}

std::size_t workspace_bytes(const Problem& problem) {
  const Mamba3 scan(problem);
  if (!scan.has_norm) return 0;
  return static_cast<std::size_t>(scan.batch * scan.seqlen * scan.nheads * scan.rank * scan.headdim) *
         sizeof(float);
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* workspace) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-sequential " + *reason);
  const Mamba3Args args = bind_mamba3(problem, tensors);
  const SequentialPlan plan(args.scan);
  float* const y = args.scan.has_norm ? static_cast<float*>(workspace) : nullptr;
  const Launch scan =
      launch_of(kernel_of(args.scan), plan.blocks(args.scan), dim3(static_cast<unsigned>(plan.threads())),
                plan.shared_bytes, args, plan, y);
  if (y == nullptr) return scan;
  const Launch norm = launch_of(norm_kernel, norm_blocks(args.scan), dim3(kNormThreads), 0, args, y);
  return [=](void* stream) {
    scan(stream);
    norm(stream);
  };
}

Implementation sequential(const char* op) {
  return with_f32_copies({.name = "cuda-sequential",
                          .op = op,
                          .device = DeviceKind::cuda,
                          .summary = "step by step in f32, the state in registers; every size and option",
                          .unsupported = unsupported,
                          .workspace_bytes = workspace_bytes,
                          .bind = bind});
}

const Registration siso(sequential("mamba3_siso_fwd"));
const Registration mimo(sequential("mamba3_mimo_fwd"));

}  // namespace
}  // namespace ssmbench::mamba3::sequential
