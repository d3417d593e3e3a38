#pragma once

// The gradients of dt from the flows that the gradient kernel leaves.

#include "kernels/ssd_chunk_scan/args.h"
#include "kernels/ssd_chunk_scan/chunked_bwd/map.h"
#include "kernels/ssd_chunk_scan/delta.h"
#include "kernels/ssd_chunk_scan/states.cuh"

namespace ssmbench {

inline constexpr int kFinishHeads = 32;  ///< of a block, so that rows of dt are read and written in sectors
inline constexpr int kFinishWarps = 16;

/// A row (batch, chunk, head): ddt of its steps in the place of dt, and the sums for dA and ddt_bias. A lane has
/// the kSide / 32 steps from kSide / 32 · lane on; `column` of dt is the head's.
template <class T, class Io, int kPitch>
__device__ void finish_row(const SsdBwdArgs& args, const ChunkedBwdPlan& plan,
                           const ChunkedBwdWorkspace& workspace, std::int64_t row, Io (&dt)[kSide<T>][kPitch],
                           int column) {
  constexpr int kOwn = kSide<T> / 32;
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
    Io& step = dt[kOwn * lane + i][column];
    const ValueSlope delta = step_size_slope(in, head, to_float(step));
    const float ddt = (in.A[head] * flow + direct.step[i]) * delta.slope;
    step = from_float<Io>(ddt);
    dA += delta.value * flow;
    dbias += ddt;
  }
  dA = sum_lanes<1, 16>(dA);
  dbias = sum_lanes<1, 16>(dbias);
  if (lane != 0) return;
  workspace.head_sums[row * plan.sums] = dA;
  workspace.head_sums[row * plan.sums + 1] = dbias;
}

/// ddt, and each chunk's sums for dA and ddt_bias, from what the gradient kernel leaves of every step. One block
/// per (batch, chunk, kFinishHeads heads), one warp per head in turn.
template <class T, class Io>
__global__ void __launch_bounds__(32 * kFinishWarps)
    ssd_finish_steps_kernel(const SsdBwdArgs args, const ChunkedBwdPlan plan,
                            const ChunkedBwdWorkspace workspace) {
  __shared__ Io dt[kSide<T>][kFinishHeads + 1];
  const SsdInputs& in = args.in;
  const std::int64_t blocks_of_chunk = ceil_div(in.nheads, kFinishHeads);
  const std::int64_t first = blockIdx.x % blocks_of_chunk * kFinishHeads;
  const std::int64_t chunk = blockIdx.x / blocks_of_chunk;  // of all batches
  const std::int64_t b = chunk / plan.chunks;
  const std::int64_t start = chunk % plan.chunks * kSide<T>;
  const int heads = steps_within(first, kFinishHeads, in.nheads);
  const int steps = steps_within(start, kSide<T>, in.seqlen);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t element = (b * in.seqlen + start) * in.nheads + first + lane;
  if (lane < heads)
#pragma unroll
    for (int i = 0; i < kSide<T>; i += kFinishWarps)
      if (i + warp < steps)
        dt[i + warp][lane] = static_cast<const Io*>(in.dt)[element + (i + warp) * in.nheads];
  __syncthreads();
  for (int i = warp; i < heads; i += kFinishWarps)
    finish_row<T>(args, plan, workspace, chunk * in.nheads + first + i, dt, i);
  __syncthreads();
  if (lane < heads)
    for (int t = warp; t < steps; t += kFinishWarps)
      static_cast<Io*>(args.ddt)[element + t * in.nheads] = dt[t][lane];
}

template <class T, class Io>
void launch_finish_steps(const SsdBwdArgs& args, const ChunkedBwdPlan& plan,
                         const ChunkedBwdWorkspace& workspace, cudaStream_t stream) {
  const std::int64_t blocks = args.in.batch * plan.chunks * ceil_div(args.in.nheads, kFinishHeads);
  ssd_finish_steps_kernel<T, Io>
      <<<static_cast<unsigned>(blocks), 32 * kFinishWarps, 0, stream>>>(args, plan, workspace);
  check_cuda(cudaGetLastError());
}

}  // namespace ssmbench
