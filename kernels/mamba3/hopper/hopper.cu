// cuda-hopper: registration. First prepare.cuh's kernels make a scan of Mamba-2's kind, with B and C of each head,
// then ssd_chunk_scan's kernel for Hopper scans (its kernel.cuh has the picture).

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <array>
#include <limits>

#include "kernels/common/hopper/device.h"
#include "kernels/mamba3/bind.h"
#include "kernels/mamba3/hopper/prepare.h"
#include "kernels/mamba3/hopper/scan.h"
#include "kernels/ssd_chunk_scan/hopper/launch.h"

namespace ssmbench::mamba3_hopper {

extern template ssd_hopper::Variant scan_for<__nv_bfloat16>(int states, bool gated);
extern template ssd_hopper::Variant scan_for<__half>(int states, bool gated);

namespace {

using ssd_hopper::Plan;

/// Multiprocessors of an H200; a GPU with fewer runs the last blocks after the first.
constexpr int kMultiprocessors = 132;

/// A head is a group: q and k are its own.
Plan plan_of(const Mamba3& scan) {
  return ssd_hopper::plan_for({scan.batch, scan.seqlen, scan.nheads, scan.nheads, scan.headdim},
                              kMultiprocessors, 1);
}

int padded_dstate(const Mamba3& scan) {
  return scan.dstate <= 64 ? 64 : 128;
}

/// What is prepared, then the states that blocks hand on.
struct Workspace {
  PreparedLayout prepared;
  std::size_t handed, bytes;

  Workspace(const Mamba3& scan, const Plan& plan) : prepared(scan) {
    WorkspaceLayout layout;
    layout.take(static_cast<std::int64_t>(prepared.bytes), 1);
    handed = layout.take(
        static_cast<std::int64_t>(ssd_hopper::handed_layout_of(plan, padded_dstate(scan)).bytes), 1);
    bytes = layout.bytes();
  }
};

std::optional<std::string> unsupported(const Problem& problem) {
  const Mamba3 scan(problem);
  if (scan.has_cu_seqlens) return "does not support cu_seqlens";
  if (problem.dtype() == DType::f32) return "needs tensors of 16-bit elements";
  if (scan.headdim % 8 != 0 || scan.dstate % 8 != 0)
    return "needs headdim and dstate that are multiples of 8: rows of 16-byte vectors";
  if (scan.dstate > kMaxPreparedStates)
    return "needs dstate of at most 128: states of 64 rows are held in registers";
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  const std::int64_t tiles = ceil_div(scan.headdim, ssd_hopper::kRows);
  const std::int64_t chunks = ceil_div(scan.seqlen, ssd_hopper::kSteps);
  if (scan.seqlen > kMost - 2 * ssd_hopper::kSteps || scan.nheads > kMost / tiles ||
      chunks > kMost / (scan.nheads * tiles) || scan.batch > kMost / (scan.nheads * tiles * chunks))
    return "needs at most 2147483647 chunks of 64 steps and 64 rows";
  if (hopper::wrong_device()) return "needs a GPU of compute capability 9.0";
  return {};
}

std::size_t workspace_bytes(const Problem& problem) {
  const Mamba3 scan(problem);
  return Workspace(scan, plan_of(scan)).bytes;
}

/// The scan as one of Mamba-2's kind.
SsdArgs scan_args(const Mamba3Args& args, const PreparedRows& rows) {
  const Mamba3& scan = args.scan;
  SsdArgs to{};
  to.in.batch = scan.batch;
  to.in.seqlen = scan.seqlen;
  to.in.nheads = scan.nheads;
  to.in.headdim = scan.headdim;
  to.in.dstate = scan.dstate;
  to.in.groups = scan.nheads;
  to.in.heads_per_group = 1;
  to.in.x = args.V;
  to.in.B = rows.k;
  to.in.C = rows.q;
  to.in.D = args.D;
  to.in.z = args.Z;
  to.in.initial_states = rows.seed;
  to.out = args.out;
  to.final_states = args.final_ssm;
  return to;
}

void check_alignment(const Mamba3Args& args) {
  for (const void* tensor :
       std::array<const void*, 10>{args.Q, args.K, args.V, args.Z, args.out, args.Q_bias, args.K_bias,
                                   args.input_ssm, args.input_k, args.final_k})
    if (reinterpret_cast<std::uintptr_t>(tensor) % 16 != 0)
      throw ContractError("cuda-hopper needs tensors that are aligned to 16 bytes");
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* workspace) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-hopper " + *reason);
  const Mamba3Args args = bind_mamba3(problem, tensors);
  check_alignment(args);
  const Plan plan = plan_of(args.scan);
  const Workspace layout(args.scan, plan);
  const PreparedRows rows = layout.prepared.at(args, workspace);
  const int states = padded_dstate(args.scan);
  const bool gated = args.Z != nullptr;
  const ssd_hopper::Variant variant = problem.dtype() == DType::f16 ? scan_for<__half>(states, gated)
                                                                    : scan_for<__nv_bfloat16>(states, gated);
  check_cuda(cudaFuncSetAttribute(variant.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  variant.shared_bytes));
  check_cuda(cudaFuncSetAttribute(variant.parts_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  variant.parts_shared_bytes));
  ssd_hopper::HopperArgs scan = ssd_hopper::make_args(scan_args(args, rows), plan, states,
                                                      static_cast<unsigned char*>(workspace) + layout.handed);
  scan.given = {.log_decay = rows.log_decay, .later = rows.s, .own = rows.gamma};
  return [=, prepare = launch_prepare(args, problem.dtype(), rows)](void* stream) {
    prepare(stream);
    ssd_hopper::launch(variant, scan, states, static_cast<cudaStream_t>(stream));
  };
}

const Registration registration{
    {.name = "cuda-hopper",
     .op = "mamba3_siso_fwd",
     .device = DeviceKind::cuda,
     .summary = "q and k rotated first, then Mamba-2's scan by wgmma and TMA; for compute capability 9.0",
     .arithmetic = [](DType io) { return Arithmetic{.math = io == DType::f16 ? Math::f16 : Math::bf16}; },
     .unsupported = unsupported,
     .workspace_bytes = workspace_bytes,
     .bind = bind}};

}  // namespace
}  // namespace ssmbench::mamba3_hopper
