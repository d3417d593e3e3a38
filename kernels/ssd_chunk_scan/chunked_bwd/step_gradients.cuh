#pragma once

// The gradients of dt from the flows that the gradient kernel leaves.

#include "kernels/ssd_chunk_scan/args.h"
#include "kernels/ssd_chunk_scan/chunked_bwd/map.h"
#include "kernels/ssd_chunk_scan/delta.h"
#include "kernels/ssd_chunk_scan/states.cuh"

namespace ssmbench {

/// ddt, and the chunk's sums for dA and ddt_bias, from what the gradient kernel leaves of every step. One
/// warp per row (batch, chunk, head); a lane has the kSide / 32 steps from kSide / 32 · lane on.
template <class T, class Io>
__global__ void __launch_bounds__(kStepsThreads)
    ssd_finish_steps_kernel(const SsdBwdArgs args, const ChunkedBwdPlan plan,
                            const ChunkedBwdWorkspace workspace) {
  constexpr int kOwn = kSide<T> / 32;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (kStepsThreads / 32) + threadIdx.x / 32;
  if (row >= plan.rows) return;
  const SsdInputs& in = args.in;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t head = row % in.nheads;
  const std::int64_t start = row / in.nheads % plan.chunks * kSide<T>;
  const std::int64_t b = row / in.nheads / plan.chunks;
  struct alignas(4 * kOwn) Own {
    float step[kOwn];
  };
  const float* const flows = workspace.flows + row * kFlowRows * kSide<T> + kOwn * lane;
  const Own out = *reinterpret_cast<const Own*>(flows + kFlowOut * kSide<T>);
  const Own into = *reinterpret_cast<const Own*>(flows + kFlowIn * kSide<T>);
  const Own direct = *reinterpret_cast<const Own*>(flows + kFlowDirect * kSide<T>);

  // Sums over this and later steps, and over earlier ones.
  float later = out.step[0];
  float earlier = into.step[0];
#pragma unroll
  for (int i = 1; i < kOwn; ++i) {
    later += out.step[i];
    earlier += into.step[i];
  }
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const float down = __shfl_down_sync(0xFFFFFFFFU, later, distance);
    const float up = __shfl_up_sync(0xFFFFFFFFU, earlier, distance);
    if (lane + distance < 32) later += down;
    if (lane >= distance) earlier += up;
  }
  float later_lanes = __shfl_down_sync(0xFFFFFFFFU, later, 1);
  if (lane == 31) later_lanes = 0.0F;
  earlier = __shfl_up_sync(0xFFFFFFFFU, earlier, 1);
  if (lane == 0) earlier = 0.0F;
  float da[kOwn];
  da[0] = later + earlier;
  if constexpr (kOwn == 2) da[1] = (out.step[1] + later_lanes) + (earlier + into.step[0]);

  float dA = 0.0F, dbias = 0.0F;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const std::int64_t t = start + kOwn * lane + i;
    if (t >= in.seqlen) continue;
    // Nothing flows past a reset, or past the first step where no state enters: the sums cancel there, but
    // for their rounding, beside which the gradient may be small.
    const bool enters = t > 0 || in.initial_states != nullptr;
    const float flow = enters && sequence_at(in, b, t) == sequence_at(in, b, t - 1) ? da[i] : 0.0F;
    const std::int64_t element = (b * in.seqlen + t) * in.nheads + head;
    const ValueSlope delta = step_size_slope(in, head, to_float(static_cast<const Io*>(in.dt)[element]));
    const float ddt = (in.A[head] * flow + direct.step[i]) * delta.slope;
    static_cast<Io*>(args.ddt)[element] = from_float<Io>(ddt);
    dA += delta.value * flow;
    dbias += ddt;
  }
  dA = sum_lanes<1, 16>(dA);
  dbias = sum_lanes<1, 16>(dbias);
  if (lane != 0) return;
  workspace.head_sums[row * plan.sums] = dA;
  workspace.head_sums[row * plan.sums + 1] = dbias;
}

}  // namespace ssmbench
