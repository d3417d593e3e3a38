// cpu-simd for the scan's gradients: vectors hold channels of one group, in f32; the formulas are those of
// scalar_bwd.cpp. A task takes some channels of a (batch, group), up to 64 at a time. These go through
// time once forward, to keep the states that enter each tile of 32 steps, and once back:
//
//   time      0        32       64
//   forward   h ─────▶ h ─────▶ h ─────▶      checkpoints of 64 channels, in the thread's part of the
//   workspace back      ◀─────── ◀─────── ◀───────      last tile first: two states' h and Ā again, then
//   their adjoint
//
// so that each pair has two exponentials. In a tile states are the outer loop and vectors of channels the
// inner one: shares of dB and dC of two states and 32 steps, one per lane, are added up over the channels
// before lanes are added. Instructions per pair and vector: 17 forward (14 of them e^x), the same again, 9
// back and some 2 for sums over lanes; what is done once per element adds some 15 at 16 states. States are
// never divided back, and the gradient of Δ·A is a product, Ā·g·h of the step before.
//
// Every sum has one order, whatever the number of threads.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/selective_scan/cpu/simd_bwd.cpp"
#include "hwy/foreach_target.h"  // compiles this file once per instruction set

#include <algorithm>

#include "hwy/highway.h"
#include "kernels/common/cpu/simd_rows-inl.h"
#include "kernels/common/tensor_data.h"
#include "kernels/selective_scan/bind.h"
#include "kernels/selective_scan/cpu/simd_bwd-inl.h"
#include "kernels/selective_scan/cpu/simd_bwd.h"

HWY_BEFORE_NAMESPACE();
namespace ssmbench::simd::HWY_NAMESPACE {

/// One task, which leaves its sums in the workspace.
void scan_task(const SimdGradientArgs& args, DType dtype, const ScanBwdPlan& plan, std::int64_t index,
               std::int64_t thread, float* workspace, ScanBwdScratch& scratch) {
  const ScanBwdPlan::Task task = plan.task(index);
  float* const sums = workspace + plan.of_tasks + index * 2 * plan.projection;
  float* const projections[2] = {sums, sums + plan.projection};
  std::fill_n(sums, 2 * plan.projection, 0.0F);
  float* const checkpoints = workspace + plan.checkpoints + thread * plan.tiles * plan.checkpoint;
  constexpr auto kMost = static_cast<std::int64_t>(kBwdChannels);
  for (std::int64_t channel = task.first; channel < task.last; channel += kMost) {
    const ChannelRun run{task.batch, task.group, channel,
                         static_cast<std::size_t>(std::min(kMost, task.last - channel))};
    float* const channel_sums =
        workspace + plan.per_channel + (task.batch * args.scan.dim + channel) * plan.channel_sums;
    ChannelGradients(args, dtype, plan, run, projections, checkpoints, channel_sums, scratch).run();
  }
}

/// dB and dC of up to kTile steps of a (batch, group) from the sums of its tasks.
void add_tasks(const SimdGradientArgs& args, DType dtype, const ScanBwdPlan& plan, std::int64_t batch,
               std::int64_t group, std::int64_t begin, const float* workspace, ScanBwdScratch& scratch) {
  const std::int64_t row = plan.tiles * static_cast<std::int64_t>(kBwdTile);
  const auto steps = static_cast<std::size_t>(steps_within(begin, kTile, args.scan.seqlen));
  const auto states = static_cast<std::size_t>(args.scan.dstate);
  const auto add = [&](std::int64_t which, void* to, const ProjectionStrides& s) {
    std::fill_n(scratch.sums, states * kTile, 0.0F);
    for (std::int64_t slab = 0; slab < plan.slabs; ++slab) {
      const std::int64_t task = (batch * plan.groups + group) * plan.slabs + slab;
      const float* part = workspace + plan.of_tasks + (task * 2 + which) * plan.projection + begin;
      for (std::size_t n = 0; n < states; ++n)
        for (std::size_t t = 0; t < steps; ++t)
          scratch.sums[n * kTile + t] +=
              part[static_cast<std::int64_t>(n) * row + static_cast<std::int64_t>(t)];
    }
    store_matrix_at(scratch.sums, kTile, states, steps, to,
                    batch * s.batch + group * s.group + begin * s.time, dtype, {s.state, s.time},
                    scratch.staging);
  };
  if (args.scan.variable_b) add(0, args.dB, args.scan.b_strides);
  if (args.scan.variable_c) add(1, args.dC, args.scan.c_strides);
}

}  // namespace ssmbench::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <omp.h>

#include <memory>
#include <vector>

namespace ssmbench::simd::scan_bwd {
namespace {

HWY_EXPORT(scan_task);
HWY_EXPORT(add_tasks);

/// A channel's sums over batches, in order.
void add_batches(const SimdGradientArgs& args, const ScanBwdPlan& plan, std::int64_t channel,
                 const float* workspace) {
  const std::int64_t dstate = args.scan.dstate;
  const auto sum = [&](std::int64_t which) {
    double total = 0;
    for (std::int64_t b = 0; b < args.scan.batch; ++b)
      total += workspace[plan.per_channel + (b * args.scan.dim + channel) * plan.channel_sums + which];
    return static_cast<float>(total);
  };
  for (std::int64_t n = 0; n < dstate; ++n) {
    const std::int64_t at = channel * dstate + n;
    args.dA[at] = sum(n);
    if (!args.scan.variable_b) static_cast<float*>(args.dB)[at] = sum(dstate + n);
    if (!args.scan.variable_c) static_cast<float*>(args.dC)[at] = sum(2 * dstate + n);
  }
  if (args.dD != nullptr) args.dD[channel] = sum(3 * dstate);
  if (args.ddelta_bias != nullptr) args.ddelta_bias[channel] = sum(3 * dstate + 1);
}

/// One thread per element of `scratch`.
void compute(const SimdGradientArgs& args, DType dtype, const ScanBwdPlan& plan, float* workspace,
             std::vector<ScanBwdScratch>& scratch) {
  const auto scan_one = HWY_DYNAMIC_DISPATCH(scan_task);
  const auto add_one = HWY_DYNAMIC_DISPATCH(add_tasks);
  constexpr auto kSteps = static_cast<std::int64_t>(kTile);
  const std::int64_t stretches = ceil_div(args.scan.seqlen, kSteps);
#pragma omp parallel num_threads(static_cast <int>(scratch.size()))
  {
    ScanBwdScratch& own = scratch[omp_get_thread_num()];
#pragma omp for schedule(dynamic)
    for (std::int64_t task = 0; task < plan.tasks; ++task)
      scan_one(args, dtype, plan, task, omp_get_thread_num(), workspace, own);
#pragma omp for schedule(static) nowait
    for (std::int64_t i = 0; i < args.scan.batch * plan.groups * stretches; ++i) {
      const std::int64_t row = i / stretches;
      add_one(args, dtype, plan, row / plan.groups, row % plan.groups, i % stretches * kSteps, workspace,
              own);
    }
#pragma omp for schedule(static)
    for (std::int64_t channel = 0; channel < args.scan.dim; ++channel)
      add_batches(args, plan, channel, workspace);
  }
}

ScanBwdPlan plan_of(const Problem& problem) {
  return plan_scan_bwd(SelectiveScan(problem), omp_get_max_threads());
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* workspace) {
  const SimdGradientArgs args{bind_scan_gradients(problem, tensors),
                              data_of<const float>(tensors, "dlast_state")};
  const ScanBwdPlan plan = plan_of(problem);
  // Shared because a Launch is copyable; launches of one binding must not overlap.
  const auto scratch = std::make_shared<std::vector<ScanBwdScratch>>(plan.threads);
  return [=, dtype = problem.dtype()](void*) {
    compute(args, dtype, plan, static_cast<float*>(workspace), *scratch);
  };
}

const Registration registration{
    {.name = "cpu-simd",
     .op = "selective_scan_bwd",
     .device = DeviceKind::cpu,
     .summary = "channels across SIMD lanes and threads, states again from every 32nd step (Highway)",
     .unsupported = not_real_zoh,
     .workspace_bytes =
         [](const Problem& problem) {
           return static_cast<std::size_t>(plan_of(problem).floats) * sizeof(float);
         },
     .bind = bind}};

}  // namespace
}  // namespace ssmbench::simd::scan_bwd

#endif  // HWY_ONCE
