#pragma once

// The kernel of cuda-fused: sequential in time, channels across threads, states in registers; every method,
// real and complex. Nothing is computed twice, nothing but the operands passes through memory.
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
//     scan     h ← Ā·h + c·u·B (+ c'·(u·B before)),    threads over (channel, states), step after step; the
//     lanes
//              y = Σ C·h                               of a channel add their sums by shuffles
//     finish   out = (y + D·u)·silu(z)                 threads as in stage
//
// 4 states a thread, and not more, since what the scan waits for is latency: more warps hide more of it. That
// makes 64 lanes at dstates over 128, two warps: each stores its part of y, and finish adds the two, in one
// order. Registers: h, A, 1/A where a method divides by it, B, C and, for methods of two samples, u·B of
// the step before: 16 to 24 floats, twice that when complex. u·B needs no memory between tiles, since the
// thread that needs it has it. Shared memory: B and C, read by all channels of the block, and u, Δ, y: 48 KB
// at most.

#include "kernels/common/discretize.h"
#include "kernels/common/io_types.cuh"
#include "kernels/common/scalar_math.h"
#include "kernels/selective_scan/args.h"
#include "kernels/selective_scan/fused_map.h"

namespace ssmbench {

using FusedKernel = void (*)(ScanArgs, FusedPlan, MethodParameters);

/// The kernel of one io dtype, given as its device type.
template <class Io>
FusedKernel fused_kernel_for(MethodId method, bool complex);

namespace fused {

/// Caps registers at 64 for real states, 96 for complex ones. The staging loops are unrolled twice only,
/// since the compiler would fill all registers with their loads and spill.
template <class Value>
constexpr int kBlocksPerSm = 8;
template <>
constexpr int kBlocksPerSm<Complex> = 5;

template <class Value>
__device__ const Value* values(const float* floats) {
  return reinterpret_cast<const Value*>(floats);
}

__device__ inline Complex to_float(Complex x) {
  return x;
}
using ssmbench::to_float;

/// Shared memory of a block, laid out as FusedPlan says.
template <class Value>
struct Tiles {
  Value* B;
  Value* C;
  float* u;
  float* delta;
  float* y;

  __device__ Tiles(float4* shared, const FusedPlan& plan)
      : B(reinterpret_cast<Value*>(shared)),
        C(B + plan.projection_values()),
        u(reinterpret_cast<float*>(C + plan.projection_values())),
        delta(u + plan.sequence_floats()),
        y(delta + plan.sequence_floats()) {}
};

/// B or C of one group from time `start` on, as [step][state]; zero in the states past dstate. Stored is the
/// type in memory: the io dtype, or Complex.
template <class Stored, class Value>
__device__ void stage_projection(Value* tile, const void* source, const ProjectionStrides& strides,
                                 const BlockChannels& block, std::int64_t start, int valid,
                                 std::int64_t dstate, const FusedPlan& plan) {
  const Stored* origin = static_cast<const Stored*>(source) + block.b * strides.batch +
                         block.g * strides.group + start * strides.time;
#pragma unroll 2
  for (int i = threadIdx.x; i < plan.states() * plan.steps(); i += plan.threads()) {
    const auto [n, t] = tile_element(i, plan.states_log2(), plan.steps_log2, strides.time == 1);
    if (t >= valid) continue;
    tile[t * plan.projection_pitch() + n] =
        n < dstate ? to_float(origin[n * strides.state + t * strides.time]) : Value{};
  }
}

/// u and Δ as [channel][step]; zero in the channels past the group's end, so that their threads compute
/// nothing odd.
template <class Io, class Value>
__device__ void stage_sequences(const Tiles<Value>& tiles, const ScanArgs& args, const BlockChannels& block,
                                std::int64_t origin, int valid, const FusedPlan& plan) {
#pragma unroll 2
  for (int i = threadIdx.x; i < plan.channels() * plan.steps(); i += plan.threads()) {
    const auto [c, t] = tile_element(i, plan.channels_log2, plan.steps_log2, args.sequence.time == 1);
    if (t >= valid) continue;
    float u = 0.0F;
    float delta = 0.0F;
    if (c < block.count) {
      const std::int64_t at = origin + c * args.sequence.dim + t * args.sequence.time;
      u = to_float(static_cast<const Io*>(args.u)[at]);
      delta = to_float(static_cast<const Io*>(args.delta)[at]);
      if (args.delta_bias != nullptr) delta += args.delta_bias[block.first + c];
      if (args.delta_softplus) delta = softplus(delta);
    }
    tiles.u[c * plan.sequence_pitch() + t] = u;
    tiles.delta[c * plan.sequence_pitch() + t] = delta;
  }
}

template <class Io, class Value>
__device__ void finish_sequences(const Tiles<Value>& tiles, const ScanArgs& args, const BlockChannels& block,
                                 std::int64_t origin, int valid, const FusedPlan& plan) {
#pragma unroll 2
  for (int i = threadIdx.x; i < plan.channels() * plan.steps(); i += plan.threads()) {
    const auto [c, t] = tile_element(i, plan.channels_log2, plan.steps_log2, args.sequence.time == 1);
    if (t >= valid || c >= block.count) continue;
    const std::int64_t at = origin + c * args.sequence.dim + t * args.sequence.time;
    const int in_tile = c * plan.sequence_pitch() + t;
    float y = tiles.y[in_tile];
    if (plan.parts() == 2) y += tiles.y[plan.sequence_floats() + in_tile];
    y *= kOutputFactor<Value>;
    if (args.D != nullptr) y += args.D[block.first + c] * tiles.u[in_tile];
    if (args.z != nullptr) y *= silu(to_float(static_cast<const Io*>(args.z)[at]));
    static_cast<Io*>(args.out)[at] = from_float<Io>(y);
  }
}

/// A thread's B or C from a [step][state] tile: 16 or 32 bytes, aligned to 16.
__device__ inline void load_states(float (&to)[kFusedStates], const float* tile) {
  const float4 four = *reinterpret_cast<const float4*>(tile);
  to[0] = four.x;
  to[1] = four.y;
  to[2] = four.z;
  to[3] = four.w;
}
__device__ inline void load_states(Complex (&to)[kFusedStates], const Complex* tile) {
#pragma unroll
  for (int s = 0; s < kFusedStates; s += 2) {
    const float4 two = *reinterpret_cast<const float4*>(tile + s);
    to[s] = {two.x, two.y};
    to[s + 1] = {two.z, two.w};
  }
}

/// `count` of a thread's states from memory, zeros after them and where there is no memory.
template <class Value>
__device__ void load_states(Value (&to)[kFusedStates], const Value* memory, std::int64_t at, int count) {
#pragma unroll
  for (int s = 0; s < kFusedStates; ++s) to[s] = memory != nullptr && s < count ? memory[at + s] : Value{};
}

template <class Io, class Value, Family family>
__global__ void __launch_bounds__(kFusedMaxThreads, kBlocksPerSm<Value>)
    fused_kernel(const ScanArgs args, const FusedPlan plan, const MethodParameters method) {
  // B and C as they lie in memory when variable.
  using Stored = std::conditional_t<std::is_same_v<Value, float>, Io, Value>;
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

  Value h[kFusedStates], A_values[kFusedStates], B[kFusedStates], C[kFusedStates];
  [[maybe_unused]] Value input_before[kFusedStates] = {};  // u·B
  load_states(h, values<Value>(args.initial_state), state_at, count);
  load_states(A_values, values<Value>(args.A), d * args.dstate + n, count);
  StateA<Value> A[kFusedStates];
#pragma unroll
  for (int s = 0; s < kFusedStates; ++s) A[s] = StateA<Value>(A_values[s]);
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

    for (int t = 0; t < valid; ++t) {
      const float u = tiles.u[c * plan.sequence_pitch() + t];
      const Step<family> step(method, tiles.delta[c * plan.sequence_pitch() + t], u);
      if (args.variable_b) load_states(B, tiles.B + t * plan.projection_pitch() + n);
      if (args.variable_c) load_states(C, tiles.C + t * plan.projection_pitch() + n);
      float y = 0.0F;
#pragma unroll
      for (int s = 0; s < kFusedStates; ++s) {
        const auto [decay, input, previous] = step(A[s]);
        h[s] = decay * h[s] + input * B[s];
        if constexpr (two_samples(family)) {
          h[s] = h[s] + previous * input_before[s];
          input_before[s] = u * B[s];
        }
        y += real_product(C[s], h[s]);
      }
      for (int distance = plan.lanes_in_warp() / 2; distance > 0; distance /= 2)
        y += __shfl_xor_sync(0xFFFFFFFFU, y, distance);
      if ((plan.lane_of(threadIdx.x) & (plan.lanes_in_warp() - 1)) == 0)
        tiles.y[plan.part_of(threadIdx.x) * plan.sequence_floats() + c * plan.sequence_pitch() + t] = y;
    }
    __syncthreads();
    finish_sequences<Io>(tiles, args, block, origin, valid, plan);
  }

  auto* last_state = reinterpret_cast<Value*>(args.last_state);
#pragma unroll
  for (int s = 0; s < kFusedStates; ++s)
    if (s < count) last_state[state_at + s] = h[s];
}

}  // namespace fused

template <class Io>
FusedKernel fused_kernel_for(MethodId method, bool complex) {
  return with_family(method, [complex]<Family family>(std::integral_constant<Family, family>) -> FusedKernel {
    return complex ? fused::fused_kernel<Io, Complex, family> : fused::fused_kernel<Io, float, family>;
  });
}

}  // namespace ssmbench
