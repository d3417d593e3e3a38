#pragma once

// The general kernel of cuda-fused, for what fused/kernel.cuh does not take: sequential in time, channels
// across threads, states in registers; every method, real and complex. Nothing is computed twice, nothing but
// the operands passes through memory. Where channels are few time is cut (segments.h): then states are
// computed twice.
//
//   block    up to 128 threads: channels of one group times lanes of 4 states; at dstate 16 four lanes.
//            Complex states: lanes of 2
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
// 4 states a thread, 2 complex ones, and not more, since what the scan waits for is latency: more warps hide
// more of it. That makes 64 lanes, complex 128, at dstates over 128, two or four warps: each stores its
// partial sum of y, and finish adds these, in one order. Registers: h, A, 1/A where a method divides by it,
// B, C and, for methods of two samples, u·B of the step before: 16 to 24 floats, twice that when complex. u·B
// needs no memory between tiles, since the thread that needs it has it. Shared memory: B and C, read by all
// channels of the block, and u, Δ, y: 48 KB at most.

#include "kernels/common/discretize.h"
#include "kernels/selective_scan/fused_general/map.h"
#include "kernels/selective_scan/fused_general/tiles.cuh"
#include "kernels/selective_scan/segments.h"

namespace ssmbench::fused_general {

using GeneralKernel = void (*)(ScanArgs, GeneralPlan, MethodParameters, SegmentStates, SequenceBorders);

/// What makes the outputs, and what makes the states between segments where time is cut.
struct GeneralKernels {
  GeneralKernel outputs, states;
};

/// The kernels of one io dtype, given as its device type.
template <class Io>
GeneralKernels general_kernels_for(MethodId method, bool complex);

/// States of a thread.
template <class Value>
constexpr int kStatesOf = kThreadStates;
template <>
constexpr int kStatesOf<Complex> = kThreadComplexStates;

/// Caps registers at 80 for real states, 128 for complex ones, with which no loop over steps or elements
/// spills.
template <class Value>
constexpr int kBlocksPerSm = 6;
template <>
constexpr int kBlocksPerSm<Complex> = 4;

/// Steps whose sums are added across lanes together, so that the shuffles of one overlap those of the others.
/// Steps past the last are staged as zeros.
inline constexpr int kStepsAtOnce = 4;

/// The coordinates of a thread: its block's segment and channels, its own channel and states.
struct ThreadCoordinates {
  int segment;
  BlockChannels block;
  std::int64_t begin, end;  ///< steps of the segment
  std::int64_t row;         ///< index of the block's first channel in the (B, D, L) tensors
  int c, n;                 ///< channel of the block, first state
  std::int64_t d, state_at;
  int count;  ///< states that exist. The others keep h = 0: their A, B and C are 0, and zeros are what they
              ///< add to y.

  __device__ ThreadCoordinates(const ScanArgs& args, const GeneralPlan& plan, const SequenceBorders& borders)
      : segment(plan.segments.count == 1 ? 0 : static_cast<int>(blockIdx.x / blocks_of(args, plan))),
        block(block_channels(plan, blockIdx.x - segment * blocks_of(args, plan), args.groups,
                             args.channels_per_group)),
        begin(0),
        end(0),
        row(block.b * args.sequence.batch + block.first * args.sequence.dim),
        c(plan.channel_of(threadIdx.x)),
        n(plan.first_state_of(threadIdx.x)),
        d(block.first + c),
        state_at((block.b * args.dim + d) * args.dstate + n),
        count(c < block.count ? static_cast<int>(args.dstate) - n : 0) {
    const SegmentRange range = plan.steps_of(segment, borders.at(block.b, args.seqlen));
    begin = range.begin;
    end = range.end;
  }
  /// Whether there is a step before the segment, of the same sequence.
  __device__ bool has_step_before() const { return segment > 0 && begin < end; }
};

/// u·B of the step before a segment, which methods of two samples take.
template <class Io, class Value>
__device__ void load_input_before(Value (&to)[kStatesOf<Value>], const Value (&B)[kStatesOf<Value>],
                                  const ScanArgs& args, const ThreadCoordinates& own) {
  using Stored = StoredProjection<Io, Value>;
  const std::int64_t t = own.begin - 1;
  const auto* variable = static_cast<const Stored*>(args.B) + own.block.b * args.b_strides.batch +
                         own.block.g * args.b_strides.group + t * args.b_strides.time;
  const std::int64_t at = own.row + own.c * args.sequence.dim + t * args.sequence.time;
  const float u = own.count > 0 ? to_float(static_cast<const Io*>(args.u)[at]) : 0.0F;
#pragma unroll
  for (int s = 0; s < kStatesOf<Value>; ++s)
    if (s < own.count)
      to[s] = u * (args.variable_b ? to_value(variable[(own.n + s) * args.b_strides.state]) : B[s]);
}

/// A, and B where it is constant.
template <class Value>
__device__ void load_constants(StateA<Value> (&A)[kStatesOf<Value>], Value (&B)[kStatesOf<Value>],
                               const ScanArgs& args, const ThreadCoordinates& own) {
  Value A_values[kStatesOf<Value>];
  load_states(A_values, values_of<Value>(args.A), own.d * args.dstate + own.n, own.count);
#pragma unroll
  for (int s = 0; s < kStatesOf<Value>; ++s) A[s] = StateA<Value>(A_values[s]);
  if (!args.variable_b)
    load_states(B, static_cast<const Value*>(args.B), own.d * args.b_strides.channel + own.n, own.count);
}

template <class Io, class Value, Family family>
__global__ void __launch_bounds__(kGeneralMaxThreads, kBlocksPerSm<Value>)
    general_kernel(const ScanArgs args, const GeneralPlan plan, const MethodParameters method,
                   const SegmentStates segments, const SequenceBorders borders) {
  using Stored = StoredProjection<Io, Value>;
  constexpr int kSteps = kStepsAtOnce;
  extern __shared__ float4 shared[];
  const Tiles<Value> tiles(shared, plan);
  const ThreadCoordinates own(args, plan, borders);
  const BlockChannels& block = own.block;
  const int c = own.c;
  const int n = own.n;

  Value h[kStatesOf<Value>], B[kStatesOf<Value>], C[kStatesOf<Value>];
  StateA<Value> A[kStatesOf<Value>];
  load_constants(A, B, args, own);
  if (!args.variable_c)
    load_states(C, static_cast<const Value*>(args.C), own.d * args.c_strides.channel + n, own.count);
  if (own.segment == 0)
    load_states(h, values_of<Value>(args.initial_state), own.state_at, own.count);
  else
    load_states(h, values_of<Value>(segments.ends) + (own.segment - 1) * segments.states, own.state_at,
                own.count);
  [[maybe_unused]] Value input_before[kStatesOf<Value>] = {};  // u·B
  if constexpr (two_samples(family))
    if (own.has_step_before()) load_input_before<Io>(input_before, B, args, own);

  for (std::int64_t start = own.begin; start < own.end; start += plan.steps()) {
    const int valid = steps_within(start, plan.steps(), own.end);
    const std::int64_t origin = own.row + start * args.sequence.time;
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
        for (int s = 0; s < kStatesOf<Value>; ++s) {
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

  if (own.segment + 1 < plan.segments.count) return;
  auto* last_state = reinterpret_cast<Value*>(args.last_state);
#pragma unroll
  for (int s = 0; s < kStatesOf<Value>; ++s)
    if (s < own.count) last_state[own.state_at + s] = h[s];
}

/// The same scan from zero, without outputs: the states at the ends of segments and the products of their
/// decays.
template <class Io, class Value, Family family>
__global__ void __launch_bounds__(kGeneralMaxThreads, kBlocksPerSm<Value>)
    general_states_kernel(const ScanArgs args, const GeneralPlan plan, const MethodParameters method,
                          const SegmentStates segments, const SequenceBorders borders) {
  using Stored = StoredProjection<Io, Value>;
  extern __shared__ float4 shared[];
  const Tiles<Value> tiles(shared, plan);
  const ThreadCoordinates own(args, plan, borders);
  const float* const delta = tiles.delta + own.c * plan.sequence_pitch();
  const float* const u = tiles.u + own.c * plan.sequence_pitch();

  Value h[kStatesOf<Value>] = {}, B[kStatesOf<Value>], product[kStatesOf<Value>];
  StateA<Value> A[kStatesOf<Value>];
  load_constants(A, B, args, own);
  [[maybe_unused]] Value input_before[kStatesOf<Value>] = {};  // u·B
  if constexpr (two_samples(family))
    if (own.has_step_before()) load_input_before<Io>(input_before, B, args, own);
#pragma unroll
  for (int s = 0; s < kStatesOf<Value>; ++s) product[s] = Value{} + 1.0F;

  for (std::int64_t start = own.begin; start < own.end; start += plan.steps()) {
    const int valid = steps_within(start, plan.steps(), own.end);
    stage_sequences<Io>(tiles, args, own.block, own.row + start * args.sequence.time, valid, plan);
    if (args.variable_b)
      stage_projection<Stored>(tiles.B, args.B, args.b_strides, own.block, start, valid, args.dstate, plan);
    __syncthreads();
#pragma unroll 2
    for (int t = 0; t < valid; ++t) {
      const Step<family> step(method, delta[t], u[t]);
      if (args.variable_b) load_vectors(B, tiles.B + t * plan.projection_pitch() + own.n);
#pragma unroll
      for (int s = 0; s < kStatesOf<Value>; ++s) {
        const auto [decay, input, previous] = step(A[s]);
        h[s] = multiply_add(decay, h[s], input * B[s]);
        if constexpr (two_samples(family)) {
          h[s] = multiply_add(previous, input_before[s], h[s]);
          input_before[s] = u[t] * B[s];
        }
        product[s] = product[s] * decay;
      }
    }
    __syncthreads();
  }

  const std::int64_t at = own.segment * segments.states + own.state_at;
#pragma unroll
  for (int s = 0; s < kStatesOf<Value>; ++s) {
    if (s >= own.count) continue;
    reinterpret_cast<Value*>(segments.ends)[at + s] = h[s];
    reinterpret_cast<Value*>(segments.decays)[at + s] = product[s];
  }
}

template <class Io>
GeneralKernels general_kernels_for(MethodId method, bool complex) {
  return with_family(
      method, [complex]<Family family>(std::integral_constant<Family, family>) -> GeneralKernels {
        if (complex) return {general_kernel<Io, Complex, family>, general_states_kernel<Io, Complex, family>};
        return {general_kernel<Io, float, family>, general_states_kernel<Io, float, family>};
      });
}

}  // namespace ssmbench::fused_general
