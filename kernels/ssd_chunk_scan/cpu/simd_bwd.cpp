// cpu-simd for the gradients of Mamba-2's scan: chunks of kSsdTile steps as products of small matrices, as
// cuda-chunked does it (chunked_bwd/gradients.cuh has the formulas), in f32 with vectors along rows. A task
// takes some heads of a (batch, group), one after the other: it walks over the chunks of a head forward, to
// keep the states that enter them, and backward with the gradient of the state.
//
//   C·S, B·S', M·x, Mᵀ·dy      rows of steps, vectors of head dims
//   dy·S, x·S', Q·B, Qᵀ·C      rows of steps, vectors of states, straight into the task's sums dC and dB
//   state, its gradient        rows of states, vectors of head dims; transposed where states are the vectors
//
// Every sum has one order, whatever the number of threads.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ssd_chunk_scan/cpu/simd_bwd.cpp"
#include "hwy/foreach_target.h"  // compiles this file once per instruction set

#include <algorithm>

#include "hwy/highway.h"
#include "kernels/common/cpu/simd_rows-inl.h"
#include "kernels/ssd_chunk_scan/bind.h"
#include "kernels/ssd_chunk_scan/cpu/simd_bwd-inl.h"
#include "kernels/ssd_chunk_scan/cpu/simd_bwd.h"

HWY_BEFORE_NAMESPACE();
namespace ssmbench::simd::HWY_NAMESPACE {

/// One task, which leaves its sums in the workspace.
void compute_task(const SsdBwdArgs& args, DType dtype, const SsdBwdPlan& plan, std::int64_t index,
                  std::int64_t thread, float* workspace, SsdBwdScratch& scratch) {
  const SsdBwdTask task = plan.task(index);
  const std::int64_t each = args.in.seqlen * plan.dstate;
  float* const sums = workspace + plan.projections + index * 2 * each;
  float* const projections[2] = {sums, sums + each};
  float* const states = workspace + plan.states + thread * plan.chunks * plan.dstate * plan.headdim;
  for (std::int64_t head = task.first_head; head < task.last_head; ++head) {
    HeadGradients(args, dtype, plan, task, head, projections, states, scratch).run();
    std::copy_n(scratch.sums, plan.sums,
                workspace + plan.head_sums + (task.batch * args.in.nheads + head) * plan.sums);
  }
}

/// dB and dC of a step from the sums of the tasks.
void add_projections(const SsdBwdArgs& args, DType dtype, const SsdBwdPlan& plan, std::int64_t batch,
                     std::int64_t t, const float* workspace, SsdBwdScratch& scratch) {
  const std::int64_t each = args.in.seqlen * plan.dstate;
  for (std::int64_t group = 0; group < plan.groups; ++group)
    for (std::int64_t which = 0; which < 2; ++which) {
      std::fill_n(scratch.y, plan.dstate, 0.0F);
      for (std::int64_t slice = 0; slice < plan.slices; ++slice) {
        const std::int64_t task = (batch * plan.groups + group) * plan.slices + slice;
        const float* part = workspace + plan.projections + (task * 2 + which) * each + t * plan.dstate;
        for (std::int64_t n = 0; n < args.in.dstate; ++n) scratch.y[n] += part[n];
      }
      const std::int64_t at = ((batch * args.in.seqlen + t) * plan.groups + group) * args.in.dstate;
      store_row_at(scratch.y, static_cast<std::size_t>(args.in.dstate), which == 0 ? args.dB : args.dC, at,
                   dtype);
    }
}

}  // namespace ssmbench::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <omp.h>

#include <memory>
#include <vector>

namespace ssmbench::simd::ssd_bwd {
namespace {

HWY_EXPORT(compute_task);
HWY_EXPORT(add_projections);

/// dA, ddt_bias and dD: sums over batches, in order.
void add_heads(const SsdBwdArgs& args, const SsdBwdPlan& plan, const float* workspace) {
  const std::int64_t nheads = args.in.nheads;
  for (std::int64_t head = 0; head < nheads; ++head) {
    const auto sum = [&](std::int64_t which) {
      double total = 0;
      for (std::int64_t b = 0; b < args.in.batch; ++b)
        total += workspace[plan.head_sums + (b * nheads + head) * plan.sums + which];
      return total;
    };
    args.dA[head] = static_cast<float>(sum(0));
    if (args.ddt_bias != nullptr) args.ddt_bias[head] = static_cast<float>(sum(1));
    if (args.dD == nullptr) continue;
    double of_head = 0;
    for (std::int64_t p = 0; p < args.in.headdim; ++p) {
      const double of_headdim = sum(2 + p);
      of_head += of_headdim;
      if (args.in.skip_per_headdim) args.dD[head * args.in.headdim + p] = static_cast<float>(of_headdim);
    }
    if (!args.in.skip_per_headdim) args.dD[head] = static_cast<float>(of_head);
  }
}

/// One thread per element of `scratch`.
void compute(const SsdBwdArgs& args, DType dtype, const SsdBwdPlan& plan, float* workspace,
             std::vector<SsdBwdScratch>& scratch) {
  const auto compute_one = HWY_DYNAMIC_DISPATCH(compute_task);
  const auto add_one = HWY_DYNAMIC_DISPATCH(add_projections);
#pragma omp parallel num_threads(static_cast <int>(scratch.size()))
  {
    SsdBwdScratch& own = scratch[omp_get_thread_num()];
#pragma omp for schedule(dynamic)
    for (std::int64_t task = 0; task < plan.tasks(); ++task)
      compute_one(args, dtype, plan, task, omp_get_thread_num(), workspace, own);
#pragma omp for schedule(static)
    for (std::int64_t step = 0; step < args.in.batch * args.in.seqlen; ++step)
      add_one(args, dtype, plan, step / args.in.seqlen, step % args.in.seqlen, workspace, own);
  }
  add_heads(args, plan, workspace);
}

SsdBwdPlan plan_of(const Problem& problem) {
  return plan_ssd_bwd(SsdChunkScan(problem), omp_get_max_threads());
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* workspace) {
  const SsdBwdArgs args = bind_ssd_bwd(problem, tensors);
  const SsdBwdPlan plan = plan_of(problem);
  // Shared because a Launch is copyable; launches of one binding must not overlap.
  const auto scratch = std::make_shared<std::vector<SsdBwdScratch>>(plan.threads);
  return [=, dtype = problem.dtype()](void*) {
    compute(args, dtype, plan, static_cast<float*>(workspace), *scratch);
  };
}

const Registration registration{
    {.name = "cpu-simd",
     .op = "ssd_chunk_scan_bwd",
     .device = DeviceKind::cpu,
     .summary = "chunks of 32 steps as products of matrices on SIMD lanes, all threads (Highway)",
     .unsupported = [](const Problem&) { return std::optional<std::string>(); },
     .workspace_bytes =
         [](const Problem& problem) {
           return static_cast<std::size_t>(plan_of(problem).floats) * sizeof(float);
         },
     .bind = bind}};

}  // namespace
}  // namespace ssmbench::simd::ssd_bwd

#endif  // HWY_ONCE
