// cuda-hopper-fused: trial.

#include <cuda_bf16.h>

#include "kernels/common/hopper/device.h"
#include "kernels/mamba3/bind.h"
#include "kernels/mamba3/hopper/prepare.h"
#include "kernels/mamba3/hopper/rotation.cuh"
#include "kernels/mamba3/hopper/scan.h"
#include "kernels/ssd_chunk_scan/hopper/launch.h"

namespace ssmbench::mamba3_hopper {

extern template RotatedVariant rotated_scan_for<__nv_bfloat16>(int states, bool gated);

namespace {

constexpr int kMultiprocessors = 132;

Plan plan_of(const Mamba3& scan) {
  return ssd_hopper::plan_for({scan.batch, scan.seqlen, scan.nheads, scan.nheads, scan.headdim},
                              kMultiprocessors, 1);
}

int padded_dstate(const Mamba3& scan) {
  return scan.dstate <= 64 ? 64 : 128;
}

struct Workspace {
  std::size_t s, gamma, seed, handed, angles, flags, bytes;

  Workspace(const Mamba3& scan, const Plan& plan) {
    WorkspaceLayout layout;
    const std::int64_t steps = scan.batch * scan.seqlen * scan.nheads;
    s = layout.take(steps, sizeof(float));
    gamma = layout.take(steps, sizeof(float));
    seed = layout.take(scan.has_initial_states ? scan.batch * scan.nheads * scan.headdim * scan.dstate : 0,
                       sizeof(float));
    handed = layout.take(
        static_cast<std::int64_t>(ssd_hopper::handed_layout_of(plan, padded_dstate(scan)).bytes), 1);
    angles = layout.take(plan.blocks * kRotatedPairs, sizeof(std::uint32_t));
    flags = layout.take(plan.blocks, sizeof(unsigned));
    bytes = layout.bytes();
  }
};

std::optional<std::string> unsupported(const Problem& problem) {
  const Mamba3 scan(problem);
  if (scan.has_cu_seqlens) return "does not support cu_seqlens";
  if (problem.dtype() != DType::bf16) return "needs bf16";
  if (scan.headdim % 8 != 0 || scan.dstate % 8 != 0 || scan.dstate > 128 || !scan.interleaved)
    return "needs multiples of 8";
  if (scan.angles % 8 != 0 || scan.angles > 32) return "needs angles";
  if (plan_of(scan).parts > 1) return "needs many heads";
  if (hopper::wrong_device()) return "needs a GPU of compute capability 9.0";
  return {};
}

std::size_t workspace_bytes(const Problem& problem) {
  const Mamba3 scan(problem);
  return Workspace(scan, plan_of(scan)).bytes;
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* workspace) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-hopper " + *reason);
  const Mamba3Args args = bind_mamba3(problem, tensors);
  const Mamba3& scan = args.scan;
  const Plan plan = plan_of(scan);
  const Workspace at(scan, plan);
  auto* const base = static_cast<unsigned char*>(workspace);
  PreparedRows rows{};
  rows.log_decay = args.adt;
  rows.s = reinterpret_cast<float*>(base + at.s);
  rows.gamma = reinterpret_cast<float*>(base + at.gamma);
  rows.seed = scan.has_initial_states ? reinterpret_cast<float*>(base + at.seed) : nullptr;
  const int states = padded_dstate(scan);
  SsdArgs to{};
  to.in.batch = scan.batch;
  to.in.seqlen = scan.seqlen;
  to.in.nheads = scan.nheads;
  to.in.headdim = scan.headdim;
  to.in.dstate = scan.dstate;
  to.in.groups = scan.groups;
  to.in.heads_per_group = scan.heads_per_group();
  to.in.x = args.V;
  to.in.B = args.K;
  to.in.C = args.Q;
  to.in.initial_states = rows.seed;
  to.final_states = args.final_ssm;
  to.in.D = args.D;
  to.in.z = args.Z;
  to.out = args.out;
  ssd_hopper::HopperArgs all = ssd_hopper::make_args(to, plan, states, base + at.handed);
  all.given = {
      .log_decay = rows.log_decay, .later = rows.s, .own = rows.gamma, .rank_shift = 0, .rows = nullptr};
  const auto size = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  all.rotation.rates = hopper::tensor_map(
      {.data = args.rates,
       .rank = 4,
       .sizes = {size(scan.angles), size(scan.nheads), size(scan.seqlen), size(scan.batch)},
       .tile = {kRotatedPairs, 1, ssd_hopper::kSteps, 1},
       .swizzle = CU_TENSOR_MAP_SWIZZLE_NONE});
  all.rotation.heads_per_group = static_cast<int>(scan.heads_per_group());
  all.rotation.angles = static_cast<int>(scan.angles);
  all.rotation.dt = args.dt;
  all.rotation.B_bias = args.K_bias;
  all.rotation.C_bias = args.Q_bias;
  all.rotation.input_angle = args.input_angle;
  all.rotation.final_angle = args.final_angle;
  all.rotation.final_B = args.final_k;
  all.rotation.handed = reinterpret_cast<std::uint32_t*>(base + at.angles);
  all.rotation.flags = reinterpret_cast<unsigned*>(base + at.flags);
  const RotatedVariant variant = rotated_scan_for<__nv_bfloat16>(states, args.Z != nullptr);
  check_cuda(cudaFuncSetAttribute(variant.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  variant.shared_bytes));
  return [=, weights = launch_weights(args, problem.dtype(), rows)](void* queue) {
    const auto stream = static_cast<cudaStream_t>(queue);
    weights(queue);
    const auto blocks = static_cast<unsigned>(plan.blocks);
    if (plan.hands_over()) {
      check_cuda(cudaMemsetAsync(all.handed.flags, 0, blocks * sizeof(unsigned), stream));
      check_cuda(cudaMemsetAsync(all.rotation.flags, 0, blocks * sizeof(unsigned), stream));
    }
    variant.kernel<<<blocks, kRotatedThreads, static_cast<std::size_t>(variant.shared_bytes), stream>>>(all);
    check_cuda(cudaGetLastError());
  };
}

const Registration registration{{.name = "cuda-hopper-fused",
                                 .op = "mamba3_siso_fwd",
                                 .device = DeviceKind::cuda,
                                 .summary = "trial",
                                 .arithmetic = [](DType) { return Arithmetic{.math = Math::bf16}; },
                                 .unsupported = unsupported,
                                 .workspace_bytes = workspace_bytes,
                                 .bind = bind}};

}  // namespace
}  // namespace ssmbench::mamba3_hopper
