// cpu-simd for the gradients of Mamba-3's scans: chunks of up to 32 steps as products of small matrices, in f32
// with vectors along rows. A row is a (step, rank). With U_t the state with the weight s_t that later steps
// see, as in simd.cpp, and W_t its adjoint but for what the step itself reads,
//
//   dq_t = U_{t-1}ᵀ·α_t·dy_t         + own     dADT_t = α_t·⟨W_t + dy_t ⊗ q_t, U_{t-1}⟩
//   dk_t = s_t·W_tᵀ·V_t              + own     c_t = ⟨W_t, V_t ⊗ k_t⟩ gives dDT and dTrap of steps t and t + 1
//   dV_t = s_t·W_t·k_t + D·dy_t      + own     own: γ_t times the products of the step's own q, k, V and dy
//
// U of a step is that which enters the chunk, with decays, and the inputs of earlier steps of the chunk; W the
// adjoint that leaves it and what later steps read. A task takes some heads of a group of a sequence, one
// after the other: it walks over the chunks of a head forward, to keep the states that enter segments of 64
// chunks, and over segments backward; in each forward again, to keep the states of its chunks.
//
// dADT sums what flows from earlier steps to later ones past step t, and subtracts nothing. Every sum has one
// order, whatever the number of threads.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/mamba3/cpu/simd_bwd.cpp"
#include "hwy/foreach_target.h"  // compiles this file once per instruction set

#include <algorithm>

#include "hwy/highway.h"
#include "kernels/common/cpu/simd_rows-inl.h"
#include "kernels/mamba3/bind.h"
#include "kernels/mamba3/cpu/simd_bwd-inl.h"
#include "kernels/mamba3/cpu/simd_bwd.h"

HWY_BEFORE_NAMESPACE();
namespace ssmbench::simd::HWY_NAMESPACE {

/// One task, which leaves its sums in the workspace.
void compute_mamba3_task(const Mamba3BwdArgs& args, DType dtype, const Mamba3BwdPlan& plan,
                         std::int64_t index, std::int64_t thread, float* workspace,
                         Mamba3BwdScratch& scratch) {
  const Mamba3BwdTask task = plan.task(index);
  const bool packed = args.in.cu_seqlens != nullptr;
  const std::int64_t begin = packed ? args.in.cu_seqlens[task.sequence] : 0;
  const std::int64_t end = packed ? args.in.cu_seqlens[task.sequence + 1] : args.in.scan.seqlen;
  Mamba3HeadGradients gradients(args, dtype, plan, thread, workspace, scratch);
  for (std::int64_t head = task.first_head; head < task.last_head; ++head)
    gradients.run(
        task.sequence, packed ? 0 : task.sequence, begin, end, head, task.slice, head == task.first_head,
        workspace + plan.head_sums + (task.sequence * args.in.scan.nheads + head) * plan.sums.count);
}

/// Row `row` of dQ and dK, of (batch, time, rank, group), from the sums of the slices.
void add_mamba3_vectors(const Mamba3BwdArgs& args, DType dtype, const Mamba3BwdPlan& plan, std::int64_t row,
                        const float* workspace, Mamba3BwdScratch& scratch) {
  const Mamba3& scan = args.in.scan;
  for (std::int64_t which = 0; which < 2; ++which) {
    std::fill_n(scratch.sum, scan.dstate, 0.0F);
    for (std::int64_t slice = 0; slice < plan.slices; ++slice) {
      const float* const part =
          workspace + plan.projections + (slice * 2 + which) * plan.part + row * plan.dstate;
      for (std::int64_t n = 0; n < scan.dstate; ++n) scratch.sum[n] += part[n];
    }
    for (std::int64_t n = 0; n < scan.dstate; ++n) scratch.row[state_of(scan, n)] = scratch.sum[n];
    store_row_at(scratch.row, static_cast<std::size_t>(scan.dstate), which == 0 ? args.dQ : args.dK,
                 row * scan.dstate, dtype);
  }
}

}  // namespace ssmbench::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <omp.h>

#include <memory>
#include <vector>

namespace ssmbench::simd::mamba3_bwd {
namespace {

HWY_EXPORT(compute_mamba3_task);
HWY_EXPORT(add_mamba3_vectors);

/// The gradients of a head's parameters: sums over sequences, in order.
void add_head(const Mamba3BwdArgs& args, const Mamba3BwdPlan& plan, std::int64_t head,
              const float* workspace) {
  const Mamba3& scan = args.in.scan;
  const auto sum = [&](std::int64_t at) {
    double total = 0;
    for (std::int64_t m = 0; m < scan.sequences; ++m)
      total += workspace[plan.head_sums + (m * scan.nheads + head) * plan.sums.count + at];
    return total;
  };
  double dD = 0;
  for (std::int64_t r = 0; r < scan.rank; ++r) {
    const std::int64_t rank = head * scan.rank + r;
    for (std::int64_t n = 0; n < scan.dstate; ++n) {
      const std::int64_t to = rank * scan.dstate + state_of(scan, n);
      args.dQ_bias[to] = static_cast<float>(sum(plan.sums.dQ_bias + r * plan.dstate + n));
      args.dK_bias[to] = static_cast<float>(sum(plan.sums.dK_bias + r * plan.dstate + n));
    }
    for (std::int64_t p = 0; p < scan.headdim; ++p) {
      const std::int64_t at = r * plan.headdim + p;
      const std::int64_t to = rank * scan.headdim + p;
      if (args.dmimo_v != nullptr) args.dmimo_v[to] = static_cast<float>(sum(plan.sums.dmimo_v + at));
      if (args.dmimo_z != nullptr) args.dmimo_z[to] = static_cast<float>(sum(plan.sums.dmimo_z + at));
      if (args.dmimo_out != nullptr) args.dmimo_out[to] = static_cast<float>(sum(plan.sums.dmimo_out + at));
      dD += sum(plan.sums.dD + at);
    }
  }
  if (args.dD != nullptr) args.dD[head] = static_cast<float>(dD);
  for (std::int64_t p = 0; p < scan.headdim && args.dnorm != nullptr; ++p) {
    double dnorm = 0;
    for (std::int64_t r = 0; r < scan.rank; ++r) dnorm += sum(plan.sums.dnorm + r * plan.headdim + p);
    args.dnorm[head * scan.headdim + p] = static_cast<float>(dnorm);
  }
}

/// One thread per element of `scratch`.
void compute(const Mamba3BwdArgs& args, DType dtype, const Mamba3BwdPlan& plan, float* workspace,
             std::vector<Mamba3BwdScratch>& scratch) {
  const auto compute_one = HWY_DYNAMIC_DISPATCH(compute_mamba3_task);
  const auto add_one = HWY_DYNAMIC_DISPATCH(add_mamba3_vectors);
#pragma omp parallel num_threads(static_cast <int>(scratch.size()))
  {
    Mamba3BwdScratch& own = scratch[omp_get_thread_num()];
#pragma omp for schedule(dynamic)
    for (std::int64_t task = 0; task < plan.tasks(); ++task)
      compute_one(args, dtype, plan, task, omp_get_thread_num(), workspace, own);
#pragma omp for schedule(static)
    for (std::int64_t row = 0; row < plan.part / plan.dstate; ++row)
      add_one(args, dtype, plan, row, workspace, own);
#pragma omp for schedule(static)
    for (std::int64_t head = 0; head < args.in.scan.nheads; ++head) add_head(args, plan, head, workspace);
  }
}

Mamba3BwdPlan plan_of(const Problem& problem) {
  return plan_mamba3_bwd(Mamba3(problem), omp_get_max_threads());
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* workspace) {
  const Mamba3BwdArgs args = bind_mamba3_bwd(problem, tensors);
  const Mamba3BwdPlan plan = plan_of(problem);
  // Shared because a Launch is copyable; launches of one binding must not overlap.
  const auto scratch = std::make_shared<std::vector<Mamba3BwdScratch>>(plan.threads);
  return [=, dtype = problem.dtype()](void*) {
    compute(args, dtype, plan, static_cast<float*>(workspace), *scratch);
  };
}

Implementation simd(const char* op) {
  return {.name = "cpu-simd",
          .op = op,
          .device = DeviceKind::cpu,
          .summary = "chunks of steps as products of matrices on SIMD lanes, all threads (Highway)",
          .unsupported = [](const Problem&) { return std::optional<std::string>(); },
          .workspace_bytes =
              [](const Problem& problem) {
                return static_cast<std::size_t>(plan_of(problem).floats) * sizeof(float);
              },
          .bind = bind};
}

const Registration siso(simd("mamba3_siso_bwd"));
const Registration mimo(simd("mamba3_mimo_bwd"));

}  // namespace
}  // namespace ssmbench::simd::mamba3_bwd

#endif  // HWY_ONCE
