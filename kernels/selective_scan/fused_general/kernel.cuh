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
//   tile     64 (32, 16, 8) time steps of all of these channels, through shared memory as f32:
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

using GeneralKernel = void (*)(ScanArgs, GeneralPlan, MethodParameters, SegmentStates, SequenceBorders,
                               DType io);

/// What makes the outputs, and what makes the states between segments where time is cut.
struct GeneralKernels {
  GeneralKernel outputs, states;
};

/// Those for float or Complex states, whatever the io dtype.
template <class Value>
GeneralKernels general_kernels_for(MethodId method);

/// States of a thread.
template <class Value>
constexpr int kStatesOf = kThreadStates;
template <>
constexpr int kStatesOf<Complex> = kThreadComplexStates;

/// Caps registers at 80 for real states, 128 for complex ones, with which no loop over steps or elements
/// spills.
template <class Value>
constexpr int kBlocksPerSm = kResidentBlocks;
template <>
constexpr int kBlocksPerSm<Complex> = kResidentComplexBlocks;

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

/// B or C of a thread's states in shared memory: of each step or, where it is constant, the same of all,
/// which it puts there itself. So steps load it without a branch.
template <class Value>
class ThreadOperand {
 public:
  using Values = Value[kStatesOf<Value>];

  __device__ ThreadOperand(Value* tile, bool variable, const void* constant, std::int64_t channel_stride,
                           const GeneralPlan& plan, const ThreadCoordinates& own)
      : first_(tile + (variable ? own.n : static_cast<int>(threadIdx.x) * kStatesOf<Value>)),
        pitch_(variable ? plan.projection_pitch() : 0) {
    if (variable) return;
    Values values;
    load_states(values, static_cast<const Value*>(constant), own.d * channel_stride + own.n, own.count);
    store_vectors(first_, values);
  }
  __device__ void load(Values& to, int step) const { load_vectors(to, first_ + step * pitch_); }

 private:
  Value* first_;
  int pitch_;
};

/// Adds the sums of kStepsAtOnce steps over the lanes of a channel in a warp, and stores them. Lanes exchange
/// the sums of different steps as long as there are any: 5 shuffles and more for lanes past four.
__device__ inline void store_sums(float* to, float (&y)[kStepsAtOnce], const GeneralPlan& plan) {
  static_assert(kStepsAtOnce == 4);
  const int lanes = plan.lanes_in_warp();
  const int lane = plan.lane_of(threadIdx.x) & (lanes - 1);
  if (lanes < kStepsAtOnce) {
    for (int distance = lanes / 2; distance > 0; distance /= 2)
#pragma unroll
      for (int k = 0; k < kStepsAtOnce; ++k) y[k] += shuffle_xor(y[k], distance);
    if (lane != 0) return;
#pragma unroll
    for (int k = 0; k < kStepsAtOnce; ++k) to[k] = y[k];
    return;
  }
  const bool second_half = (lane & 1) != 0;
  const bool odd = (lane & 2) != 0;
  const auto exchange = [](float even_own, float odd_own, int distance, bool keeps_odd) {
    return (keeps_odd ? odd_own : even_own) + shuffle_xor(keeps_odd ? even_own : odd_own, distance);
  };
  float sum = exchange(exchange(y[0], y[2], 1, second_half), exchange(y[1], y[3], 1, second_half), 2, odd);
  for (int distance = kStepsAtOnce; distance < lanes; distance *= 2) sum += shuffle_xor(sum, distance);
  if (lane < kStepsAtOnce) to[(second_half ? 2 : 0) + (odd ? 1 : 0)] = sum;
}

/// u·B of the step before a segment, which methods of two samples take.
template <class Value>
__device__ void load_input_before(Value (&to)[kStatesOf<Value>], const ThreadOperand<Value>& constant,
                                  const ScanArgs& args, const ThreadCoordinates& own, DType io) {
  Value B[kStatesOf<Value>] = {};
  if (!args.variable_b) constant.load(B, 0);
  const std::int64_t t = own.begin - 1;
  const std::int64_t at = own.row + own.c * args.sequence.dim + t * args.sequence.time;
  const std::int64_t variable = own.block.b * args.b_strides.batch + own.block.g * args.b_strides.group +
                                t * args.b_strides.time + own.n * args.b_strides.state;
  const float u = own.count > 0 ? element_to_float(load_element(element_of(args.u, at, io), io), io) : 0.0F;
#pragma unroll
  for (int s = 0; s < kStatesOf<Value>; ++s) {
    if (s >= own.count) continue;
    if (args.variable_b) {
      if constexpr (std::is_same_v<Value, Complex>)
        B[s] = static_cast<const Complex*>(args.B)[variable + s * args.b_strides.state];
      else
        B[s] = element_to_float(load_element(element_of(args.B, variable + s * args.b_strides.state, io), io),
                                io);
    }
    to[s] = u * B[s];
  }
}

template <class Value>
__device__ void load_A(StateA<Value> (&A)[kStatesOf<Value>], const ScanArgs& args,
                       const ThreadCoordinates& own) {
  Value A_values[kStatesOf<Value>];
  load_states(A_values, values_of<Value>(args.A), own.d * args.dstate + own.n, own.count);
#pragma unroll
  for (int s = 0; s < kStatesOf<Value>; ++s) A[s] = StateA<Value>(A_values[s]);
}

template <class Value, Family family>
__global__ void __launch_bounds__(kGeneralMaxThreads, kBlocksPerSm<Value>)
    general_kernel(const ScanArgs args, const GeneralPlan plan, const MethodParameters method,
                   const SegmentStates segments, const SequenceBorders borders, const DType io) {
  constexpr int kSteps = kStepsAtOnce;
  extern __shared__ float4 shared[];
  const Tiles<Value> tiles(shared, plan);
  const ThreadCoordinates own(args, plan, borders);
  const BlockChannels& block = own.block;
  const int c = own.c;
  const ThreadOperand<Value> own_B(tiles.B, args.variable_b, args.B, args.b_strides.channel, plan, own);
  const ThreadOperand<Value> own_C(tiles.C, args.variable_c, args.C, args.c_strides.channel, plan, own);

  Value h[kStatesOf<Value>];
  StateA<Value> A[kStatesOf<Value>];
  load_A(A, args, own);
  if (own.segment == 0)
    load_states(h, values_of<Value>(args.initial_state), own.state_at, own.count);
  else
    load_states(h, values_of<Value>(segments.ends) + (own.segment - 1) * segments.states, own.state_at,
                own.count);
  [[maybe_unused]] Value input_before[kStatesOf<Value>] = {};  // u·B
  if constexpr (two_samples(family))
    if (own.has_step_before()) load_input_before(input_before, own_B, args, own, io);

  for (std::int64_t start = own.begin; start < own.end; start += plan.steps()) {
    const int valid = steps_within(start, plan.steps(), own.end);
    const std::int64_t origin = own.row + start * args.sequence.time;
    // No barrier between finish and the next stage: u is read and rewritten by the same thread, y is not
    // staged, and the scan's reads of the rest lie before the barrier that precedes finish.
    if (args.variable_b)
      stage_projection(tiles.B, args.B, args.b_strides, block, start, valid, args.dstate, plan, io);
    if (args.variable_c)
      stage_projection(tiles.C, args.C, args.c_strides, block, start, valid, args.dstate, plan, io);
    copy_async_commit();
    stage_sequences(tiles, args, block, origin, valid, plan, io);
    copy_async_wait<0>();
    __syncthreads();

    for (int first = 0; first < valid; first += kSteps) {
      float y[kSteps] = {};
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        const int t = first + k;
        const float u = tiles.u[c * plan.sequence_pitch() + t];
        const Step<family> step(method, tiles.delta[c * plan.sequence_pitch() + t], u);
        Value B[kStatesOf<Value>], C[kStatesOf<Value>];
        own_B.load(B, t);
        own_C.load(C, t);
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
      store_sums(
          tiles.y + plan.partial_of(threadIdx.x) * plan.sequence_floats() + c * plan.sequence_pitch() + first,
          y, plan);
    }
    __syncthreads();
    finish_sequences(tiles, args, block, origin, valid, plan, io);
  }

  if (own.segment + 1 < plan.segments.count) return;
  auto* last_state = reinterpret_cast<Value*>(args.last_state);
#pragma unroll
  for (int s = 0; s < kStatesOf<Value>; ++s)
    if (s < own.count) last_state[own.state_at + s] = h[s];
}

/// The same scan from zero, without outputs: the states at the ends of segments and the products of their
/// decays.
template <class Value, Family family>
__global__ void __launch_bounds__(kGeneralMaxThreads, kBlocksPerSm<Value>)
    general_states_kernel(const ScanArgs args, const GeneralPlan plan, const MethodParameters method,
                          const SegmentStates segments, const SequenceBorders borders, const DType io) {
  extern __shared__ float4 shared[];
  const Tiles<Value> tiles(shared, plan);
  const ThreadCoordinates own(args, plan, borders);
  const float* const delta = tiles.delta + own.c * plan.sequence_pitch();
  const float* const u = tiles.u + own.c * plan.sequence_pitch();

  const ThreadOperand<Value> own_B(tiles.B, args.variable_b, args.B, args.b_strides.channel, plan, own);
  Value h[kStatesOf<Value>] = {}, product[kStatesOf<Value>];
  StateA<Value> A[kStatesOf<Value>];
  load_A(A, args, own);
  [[maybe_unused]] Value input_before[kStatesOf<Value>] = {};  // u·B
  if constexpr (two_samples(family))
    if (own.has_step_before()) load_input_before(input_before, own_B, args, own, io);
#pragma unroll
  for (int s = 0; s < kStatesOf<Value>; ++s) product[s] = Value{} + 1.0F;

  for (std::int64_t start = own.begin; start < own.end; start += plan.steps()) {
    const int valid = steps_within(start, plan.steps(), own.end);
    if (args.variable_b)
      stage_projection(tiles.B, args.B, args.b_strides, own.block, start, valid, args.dstate, plan, io);
    copy_async_commit();
    stage_sequences(tiles, args, own.block, own.row + start * args.sequence.time, valid, plan, io);
    copy_async_wait<0>();
    __syncthreads();
#pragma unroll 2
    for (int t = 0; t < valid; ++t) {
      const Step<family> step(method, delta[t], u[t]);
      Value B[kStatesOf<Value>];
      own_B.load(B, t);
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

template <class Value>
GeneralKernels general_kernels_for(MethodId method) {
  return with_family(method, []<Family family>(std::integral_constant<Family, family>) -> GeneralKernels {
    return {general_kernel<Value, family>, general_states_kernel<Value, family>};
  });
}

}  // namespace ssmbench::fused_general
