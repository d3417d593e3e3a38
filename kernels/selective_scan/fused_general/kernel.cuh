#pragma once

// The general kernel of cuda-fused, for what fused/kernel.cuh does not take: sequential in time,
// channels across threads, states in registers; every method, real and complex. Nothing is computed twice,
// nothing but the operands passes through memory.
//
//   block    up to 128 threads: channels of one group times lanes of 4 states; at dstate 16 four lanes
//
//     thread      0      1      2       3     |   4      5   ...
//     channel                0                |       1      ...
//     states    0..3   4..7   8..11  12..15   | 0..3   4..7  ...
//
//   tile     32 (16, 8) time steps of all of these channels, through shared memory as f32:
//
//     stage    Δ = softplus(delta + bias), u, B, C     threads along whichever axis is contiguous in memory
//     scan     h ← Ā·h + c·u·B + c'·(u·B before),      threads over (channel, states), step after step; the
//              y = Σ C·h                               lanes of a channel add their sums by shuffles
//     finish   out = (y + D·u)·silu(z)                 threads as in stage
//
// 4 states a thread, and not more, since what the scan waits for is latency: more warps hide more of it. That
// makes 64 lanes at dstates over 128, two warps: each stores its partial sum of y, and finish adds the two,
// in one order. Registers: h, A, 1/A where a method divides by it, B, C and, for methods of two samples, u·B
// of the step before: 16 to 24 floats, twice that when complex. u·B needs no memory between tiles, since the
// thread that needs it has it. Shared memory: B and C, read by all channels of the block, and u, Δ, y: 48 KB
// at most.

#include "kernels/common/discretize.h"
#include "kernels/selective_scan/fused_general/map.h"
#include "kernels/selective_scan/fused_general/tiles.cuh"

namespace ssmbench::fused_general {

using GeneralKernel = void (*)(ScanArgs, GeneralPlan, MethodParameters);

/// The kernel of one io dtype, given as its device type.
template <class Io>
GeneralKernel general_kernel_for(MethodId method, bool complex);

/// Caps registers at 80 for real states, 168 for complex ones, with which no loop over steps or elements
/// spills; with fewer, the instructions of one complex state wait for each other and not for those of the
/// next.
template <class Value>
constexpr int kBlocksPerSm = 6;
template <>
constexpr int kBlocksPerSm<Complex> = 3;

/// Steps whose sums are added across lanes together, so that the shuffles of one overlap those of the others.
/// Four complex ones would take more registers than there are. Steps past the last are staged as zeros.
template <class Value>
constexpr int kStepsAtOnce = 4;
template <>
constexpr int kStepsAtOnce<Complex> = 2;

template <class Io, class Value, Family family>
__global__ void __launch_bounds__(kGeneralMaxThreads, kBlocksPerSm<Value>)
    general_kernel(const ScanArgs args, const GeneralPlan plan, const MethodParameters method) {
  using Stored = StoredProjection<Io, Value>;
  constexpr int kSteps = kStepsAtOnce<Value>;
  extern __shared__ float4 shared[];
  const Tiles<Value> tiles(shared, plan);
  const BlockChannels block = block_channels(plan, blockIdx.x, args.groups, args.channels_per_group);
  const std::int64_t row = block.b * args.sequence.batch + block.first * args.sequence.dim;

  const int c = plan.channel_of(threadIdx.x);
  const int n = plan.first_state_of(threadIdx.x);
  const std::int64_t d = block.first + c;
  const std::int64_t state_at = (block.b * args.dim + d) * args.dstate + n;
  // States that exist. The others keep h = 0: their A, B and C are 0, and zeros are what they add to y.
  const int count = c < block.count ? static_cast<int>(args.dstate) - n : 0;

  Value h[kThreadStates], A_values[kThreadStates], B[kThreadStates], C[kThreadStates];
  [[maybe_unused]] Value input_before[kThreadStates] = {};  // u·B
  load_states(h, values_of<Value>(args.initial_state), state_at, count);
  load_states(A_values, values_of<Value>(args.A), d * args.dstate + n, count);
  StateA<Value> A[kThreadStates];
#pragma unroll
  for (int s = 0; s < kThreadStates; ++s) A[s] = StateA<Value>(A_values[s]);
  if (!args.variable_b)
    load_states(B, static_cast<const Value*>(args.B), d * args.b_strides.channel + n, count);
  if (!args.variable_c)
    load_states(C, static_cast<const Value*>(args.C), d * args.c_strides.channel + n, count);

  for (std::int64_t start = 0; start < args.seqlen; start += plan.steps()) {
    const int valid = steps_within(start, plan.steps(), args.seqlen);
    const std::int64_t origin = row + start * args.sequence.time;
    // No barrier between finish and the next stage: u is read and rewritten by the same thread, y is not
    // staged, and the scan's reads of the rest lie before the barrier that precedes finish.
    stage_sequences<Io>(tiles, args, block, origin, valid, plan);
    if (args.variable_b)
      stage_projection<Stored>(tiles.B, args.B, args.b_strides, block, start, valid, args.dstate, plan);
    if (args.variable_c)
      stage_projection<Stored>(tiles.C, args.C, args.c_strides, block, start, valid, args.dstate, plan);
    __syncthreads();

    for (int first = 0; first < valid; first += kSteps) {
      float y[kSteps] = {};
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        const int t = first + k;
        const float u = tiles.u[c * plan.sequence_pitch() + t];
        const Step<family> step(method, tiles.delta[c * plan.sequence_pitch() + t], u);
        if (args.variable_b) load_vectors(B, tiles.B + t * plan.projection_pitch() + n);
        if (args.variable_c) load_vectors(C, tiles.C + t * plan.projection_pitch() + n);
#pragma unroll
        for (int s = 0; s < kThreadStates; ++s) {
          const auto [decay, input, previous] = step(A[s]);
          h[s] = multiply_add(decay, h[s], input * B[s]);
          if constexpr (two_samples(family)) {
            h[s] = multiply_add(previous, input_before[s], h[s]);
            input_before[s] = u * B[s];
          }
          y[k] += real_product(C[s], h[s]);
        }
      }
      for (int distance = plan.lanes_in_warp() / 2; distance > 0; distance /= 2)
#pragma unroll
        for (int k = 0; k < kSteps; ++k) y[k] += __shfl_xor_sync(0xFFFFFFFFU, y[k], distance);
      if ((plan.lane_of(threadIdx.x) & (plan.lanes_in_warp() - 1)) == 0) {
        float* to = tiles.y + plan.partial_of(threadIdx.x) * plan.sequence_floats() +
                    c * plan.sequence_pitch() + first;
#pragma unroll
        for (int k = 0; k < kSteps; ++k) to[k] = y[k];
      }
    }
    __syncthreads();
    finish_sequences<Io>(tiles, args, block, origin, valid, plan);
  }

  auto* last_state = reinterpret_cast<Value*>(args.last_state);
#pragma unroll
  for (int s = 0; s < kThreadStates; ++s)
    if (s < count) last_state[state_at + s] = h[s];
}

template <class Io>
GeneralKernel general_kernel_for(MethodId method, bool complex) {
  return with_family(
      method, [complex]<Family family>(std::integral_constant<Family, family>) -> GeneralKernel {
        return complex ? general_kernel<Io, Complex, family> : general_kernel<Io, float, family>;
      });
}

}  // namespace ssmbench::fused_general
