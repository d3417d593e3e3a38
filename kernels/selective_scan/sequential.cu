// cuda-sequential: sequential in time, channels across threads, states in registers. No scan along time, so
// each (element, state) pair costs one exponential and three multiply-adds and nothing is computed twice.
//
//   block    up to 128 threads: channels of one group times lanes; at dstate 16 two lanes of 8 states each
//
//     thread      0        1     |   2        3     |   4 ...
//     channel         0          |        1         |   2 ...
//     states    0..7    8..15    | 0..7     8..15   |
//
//   tile     32 (or 16) time steps of all of these channels, through shared memory as f32:
//
//     stage    Δ = softplus(delta + bias), u, B, C     threads along whichever axis is contiguous in memory
//     scan     h ← e^(Δ·A)·h + Δ·u·B,  y = Σ C·h       threads over (channel, states), step after step; the
//                                                      lanes of a channel add their sums by shuffles
//     finish   out = (y + D·u)·silu(z)                 threads as in stage
//
// Registers: h, A, B and C of 8 states are 32; with addresses and loads in flight, 96. 8 states on each of 32
// lanes are the largest dstate, 256. Shared memory: B and C, read by all channels of the block, and u, Δ, y:
// 30 KB at dstate 16, under 48 KB always.

#include "kernels/common/launch.cuh"
#include "kernels/selective_scan/block_channels.h"
#include "kernels/selective_scan/fused_general/tiles.cuh"

namespace ssmbench {
namespace {

/// Caps registers at 96; the few values that do not fit are shared by the steps of a tile.
constexpr int kBlocksPerSm = 5;

template <class T>
__global__ void __launch_bounds__(kSequentialMaxThreads, kBlocksPerSm)
    sequential_kernel(const ScanArgs args, const SequentialPlan plan) {
  extern __shared__ float4 shared[];
  const staged::Tiles<float> tiles(shared, plan);
  const BlockChannels block = block_channels(plan, blockIdx.x, args.groups, args.channels_per_group);
  const std::int64_t row = block.b * args.sequence.batch + block.first * args.sequence.dim;

  const int c = plan.channel_of(threadIdx.x);
  const int n = plan.first_state_of(threadIdx.x);
  const std::int64_t d = block.first + c;
  const std::int64_t state_at = (block.b * args.dim + d) * args.dstate + n;
  // States that exist. The others keep h = 0: their A, B and C are 0, and zeros are what they add to y.
  const int count = c < block.count ? static_cast<int>(args.dstate) - n : 0;

  float h[kStatesPerThread], A[kStatesPerThread], B[kStatesPerThread], C[kStatesPerThread];
  staged::load_states(h, args.initial_state, state_at, count);
  staged::load_states(A, args.A, d * args.dstate + n, count);
  if (!args.variable_b)
    staged::load_states(B, static_cast<const float*>(args.B), d * args.b_strides.channel + n, count);
  if (!args.variable_c)
    staged::load_states(C, static_cast<const float*>(args.C), d * args.c_strides.channel + n, count);

  for (std::int64_t start = 0; start < args.seqlen; start += plan.steps()) {
    const int valid = steps_within(start, plan.steps(), args.seqlen);
    const std::int64_t origin = row + start * args.sequence.time;
    // No barrier between finish and the next stage: u is read and rewritten by the same thread, y is not
    // staged, and the scan's reads of the rest lie before the barrier that precedes finish.
    staged::stage_sequences<T>(tiles, args, block, origin, valid, plan);
    if (args.variable_b)
      staged::stage_projection<T>(tiles.B, args.B, args.b_strides, block, start, valid, args.dstate, plan);
    if (args.variable_c)
      staged::stage_projection<T>(tiles.C, args.C, args.c_strides, block, start, valid, args.dstate, plan);
    __syncthreads();

    for (int t = 0; t < valid; ++t) {
      const float delta = tiles.delta[c * plan.sequence_pitch() + t];
      const float delta_u = delta * tiles.u[c * plan.sequence_pitch() + t];
      if (args.variable_b) staged::load_states(B, tiles.B + t * plan.projection_pitch() + n);
      if (args.variable_c) staged::load_states(C, tiles.C + t * plan.projection_pitch() + n);
      float y = 0.0F;
#pragma unroll
      for (int s = 0; s < kStatesPerThread; ++s) {
        h[s] = expf(delta * A[s]) * h[s] + delta_u * B[s];
        y += C[s] * h[s];
      }
      for (int distance = plan.lanes() / 2; distance > 0; distance /= 2)
        y += __shfl_xor_sync(0xFFFFFFFFU, y, distance);
      if (n == 0) tiles.y[c * plan.sequence_pitch() + t] = y;
    }
    __syncthreads();
    staged::finish_sequences<T>(tiles, args, block, origin, valid, plan);
  }

#pragma unroll
  for (int s = 0; s < kStatesPerThread; ++s)
    if (s < count) args.last_state[state_at + s] = h[s];
}

using Kernel = void (*)(ScanArgs, SequentialPlan);

std::optional<std::string> unsupported(const Problem& problem) {
  if (auto reason = not_real_zoh(problem)) return reason;
  const SelectiveScan scan(problem);
  return staged::too_many_blocks(scan, plan_sequential(scan.channels_per_group(), scan.dstate));
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-sequential " + *reason);
  const ScanArgs args = bind_scan(problem, tensors);
  const SequentialPlan plan = plan_sequential(args.channels_per_group, args.dstate);
  const Kernel kernel = with_io_type(
      problem.dtype(), []<class T>(std::type_identity<T>) -> Kernel { return sequential_kernel<T>; });
  return launch_of(kernel, staged::blocks_of(args, plan), plan.threads(), plan.shared_bytes(), args, plan);
}

const Registration registration{{.name = "cuda-sequential",
                                 .op = "selective_scan_fwd",
                                 .device = DeviceKind::cuda,
                                 .summary = "sequential in time, states in registers, both layouts",
                                 .unsupported = unsupported,
                                 .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
                                 .work = scan_work,
                                 .bind = bind}};

}  // namespace
}  // namespace ssmbench
