#pragma once

// The general kernels of cuda-fused for selective_scan_bwd: every method, real and complex. Channels across
// threads and sequential in time as in fused_general/kernel.cuh, with the same threads:
//
//   block    up to 128 threads: channels of one group times lanes of 4 states; at dstate 16 four lanes
//
//     thread      0      1      2       3     |   4      5   ...
//     channel                0                |       1      ...
//     states    0..3   4..7   8..11  12..15   | 0..3   4..7  ...
//
// Going back in time needs the states, last step first. They are kept at a few steps and rematerialized
// from there, in two levels, so that memory does not grow with the length:
//
//   0             S             2·S           L
//   ├────────────►├────────────►│               forward_kernel: states at segments, if there are several
//                               ├──►├──►├──►│   forward_kernel: states at the tiles of one segment
//                               ◄───◄───◄───    gradient_kernel, last tile first
//                 ├──►├──►├──►├──►              then the segment before, …
//                 ◄───◄───◄───◄───
//
// Where channels are few, segments are done side by side instead, in spans that have room in the workspace:
//
//   ├──►  ├──►  ├──►   segment_kernel: all segments from zero: h at the end, and what the carry at the end
//   ◄──┤  ◄──┤  ◄──┤   contributes at the start
//   ├─────►─────►──►   combine_kernel (segments.cuh): the true h at the starts, the true carries at the ends,
//   ◄──◄─────◄─────┤   which begin with dlast_state
//   ├──►  ├──►  ├──►   forward_kernel: states at the tiles
//   ◄──┤  ◄──┤  ◄──┤   gradient_kernel
//
// Where even the states at segments are too many, there are up to three more levels above: forward_kernel
// keeps the states at ranges of several segments, and those at segments are rematerialized range by range.
//
// gradient_kernel, a tile of 16 steps (fewer where 16 do not fit), last tile first:
//
//     stage    Δ, its slope, u, dy, B, C               threads along whichever axis is contiguous in memory
//     forward  h of every step, to shared memory       threads over (channel, states)
//     back     g ← k·dy·conj(C) + carry;               the same; sums over the states (du, ∂Δ, y) by shuffles
//              carry ← conj(Ā)·g; all that g gives     among the lanes of a channel, sums over the warp's
//                                                      channels (dB, dC) by shuffles among its channels
//     finish   du, ddelta, dz; the sums of dB and dC   threads as in stage
//              over the warps, to the workspace
//
// Steps past the end are staged as zeros, which change nothing, so that all tiles are whole and their loops
// unrolled. For real states and dstates of 9 to 16 the plan is a compile-time constant (`fixed`), which
// spares a third of the instructions. These kernels have code for the memory of each io dtype. The others
// share it between f16 and bf16: complex states take 3 to 9% less time so, these would take up to 3% more.
//
// In both exchanges a thread gives half of its sums away at each step and adds what it gets to the other
// half, so that 8 sums over 8 channels take 7 shuffles and not 24. dB and dC of a group are the sums of its
// blocks' shares, in order (share_kernel, launch.cu); dA, dD, ddelta_bias, constant dB and dC are summed
// per tile in registers, over tiles in shared memory, over segments in the workspace, and over batches at
// last. No atomics, and all orders are fixed, so that results are bitwise the same in every run.
//
// Registers: h, A, B, C, carry and the sums of dA, dB, dC: 32 floats, 40 for methods of two samples, twice
// that when complex; capped at 128, 168 when complex. Shared memory: 56 KB at most (map.h), most of
// it the states of a tile, so that four blocks share an SM.

#include "kernels/common/discretize_derivative.h"
#include "kernels/selective_scan/fused_bwd_general/map.h"
#include "kernels/selective_scan/fused_bwd_general/stage.cuh"
#include "kernels/selective_scan/fused_bwd_general/sums.cuh"
#include "kernels/selective_scan/segments.cuh"

namespace ssmbench::fused_bwd_general {

using GeneralForwardKernel = void (*)(ScanArgs, DType, GeneralBackwardPlan, MethodParameters, StateRun,
                                      const float* starts);
using GeneralSegmentKernel = void (*)(ScanGradientArgs, DType, GeneralBackwardPlan, MethodParameters,
                                      float* workspace, GeneralBackwardWorkspace);
using GeneralGradientKernel = void (*)(ScanGradientArgs, DType, GeneralBackwardPlan, MethodParameters,
                                       SegmentRange, float* workspace, GeneralBackwardWorkspace);

struct GeneralBackwardKernels {
  GeneralForwardKernel forward;
  GeneralSegmentKernel segment;  ///< null for methods of two samples
  GeneralGradientKernel gradient;
};

/// The kernels for states of type Value: float or Complex.
template <class Value>
GeneralBackwardKernels general_backward_kernels(MethodId method, const GeneralBackwardPlan& plan);

/// Caps registers at 64 and 128 for real states, 96 and 168 for complex ones.
template <class Value>
constexpr int kForwardBlocksPerSm = 8;
template <>
constexpr int kForwardBlocksPerSm<Complex> = 5;
template <class Value>
constexpr int kGradientBlocksPerSm = 4;
template <>
constexpr int kGradientBlocksPerSm<Complex> = 3;

/// The plans that are known at compile time: four lanes, blocks of 128 threads, the longest tiles.
SSMBENCH_HD constexpr GeneralBackwardPlan with_fixed_sizes(GeneralBackwardPlan plan) {
  plan.tile.lanes_log2 = 2;
  plan.tile.channels_log2 = 5;
  plan.tile.steps_log2 = 4;
  plan.forward_steps_log2 = 5;
  return plan;
}
inline bool has_fixed_sizes(const GeneralBackwardPlan& plan) {
  const GeneralBackwardPlan fixed = with_fixed_sizes(plan);
  return plan.tile.lanes_log2 == fixed.tile.lanes_log2 &&
         plan.tile.channels_log2 == fixed.tile.channels_log2 &&
         plan.tile.steps_log2 == fixed.tile.steps_log2 && plan.forward_steps_log2 == fixed.forward_steps_log2;
}

/// The plan with what this instance of a kernel knows of it.
template <class Value, bool fixed>
__device__ GeneralBackwardPlan known(GeneralBackwardPlan plan) {
  plan.tile.value_floats = static_cast<int>(sizeof(Value) / sizeof(float));
  if constexpr (fixed) plan = with_fixed_sizes(plan);
  return plan;
}

/// The step of one state; `before` is u·B of the step before it and, at the end, of this one.
template <Family family, class Value>
__device__ void advance(Value& h, Value& before, const StepDerivative<family>& step, Value A, float u,
                        Value B) {
  const auto [decay, input, previous] = step(A);
  h = decay.value * h + (u * input.value) * B;
  if constexpr (two_samples(family)) {
    h = h + previous.value * before;
    before = u * B;
  }
}

template <class Value, Family family, bool fixed>
__global__ void __launch_bounds__(kGeneralMaxThreads, kForwardBlocksPerSm<Value>)
    forward_kernel(const ScanArgs args, const DType io, const GeneralBackwardPlan given,
                   const MethodParameters method, const StateRun given_run, const float* starts) {
  extern __shared__ float4 shared[];
  const GeneralBackwardPlan backward = known<Value, fixed>(given);
  const GeneralPlan plan = backward.forward_tile();
  auto* tile_B = reinterpret_cast<Value*>(shared);
  auto* tile_u = reinterpret_cast<float*>(tile_B + plan.projection_values());
  float* tile_delta = tile_u + plan.sequence_floats();
  const ThreadCoordinates own(args, plan);
  const std::int64_t thread_at = own.grid_state(plan);
  const bool side_by_side = starts != nullptr;
  const StateRun run = side_by_side ? segment_run(backward, given_run, blockIdx.y) : given_run;

  Value h[kThreadStates], A[kThreadStates], B[kThreadStates] = {};
  [[maybe_unused]] Value before[kThreadStates] = {};  // u·B of the step before
  if (run.from != nullptr)
    load_vectors(h, values_of<Value>(run.from) + thread_at);
  else if (side_by_side && run.begin > 0)
    load_states(h, values_of<Value>(starts) + (backward.sums_at(run.begin) - 1) * backward.states(),
                own.batch_state(args), own.count);
  else
    load_states(h, values_of<Value>(args.initial_state), own.batch_state(args), own.count);
  load_states(A, values_of<Value>(args.A), own.channel_state(args), own.count);
  if (!args.variable_b) load_constants(B, args.B, args.b_strides, own);
  if constexpr (two_samples(family))
    if (run.begin > 0) load_products<!fixed>(before, B, args, io, own, run.begin - 1);

  Value* to = reinterpret_cast<Value*>(run.to) + thread_at;
  for (std::int64_t start = run.begin; start < run.last; start += plan.steps()) {
    const int valid = steps_within(start, plan.steps(), run.last);
    with_io<!fixed>(io, [&]<class Io>(std::type_identity<Io>) {
      ProjectionLoader<StoredProjection<Io, Value>, Value, kInFlight> load_B(
          tile_B, args.B, args.variable_b, args.b_strides, own, start, valid, args.dstate, plan, io);
      stage_sequences<Io, 2>({args.u, args.delta}, args, own, start, valid, plan, io,
                             [&](int at, bool exists, const float(&loaded)[2]) {
                               const auto [u, x] = loaded;
                               const float delta = args.delta_softplus ? softplus_slope(x).value : x;
                               tile_u[at] = exists ? u : 0.0F;
                               tile_delta[at] = exists ? delta : 0.0F;
                             });
      load_B.finish();
    });
    __syncthreads();

    for (int first = 0; first < valid; first += backward.tile.steps()) {
      if (((start - run.begin + first) & (run.every - 1)) == 0) {
        store_vectors(to, h);
        to += backward.thread_floats() / backward.tile.value_floats;
      }
#pragma unroll(fixed ? 4 : 1)
      for (int t = first; t < first + backward.tile.steps(); ++t) {
        const int at = own.channel * plan.sequence_pitch() + t;
        const float u = tile_u[at];
        const StepDerivative<family> step(method, tile_delta[at]);
        if (args.variable_b) load_vectors(B, tile_B + t * plan.projection_pitch() + own.state);
#pragma unroll
        for (int s = 0; s < kThreadStates; ++s) advance(h[s], before[s], step, A[s], u, B[s]);
      }
    }
    __syncthreads();
  }
  store_vectors(to, h);
}

/// Shared memory of the gradient kernel, laid out as GeneralBackwardPlan says.
template <class Value>
struct GradientTiles {
  Value *B, *C, *exchange, *totals;
  float *u, *delta, *slope, *dy, *dz_factor;  ///< slope: of Δ by delta; dz = y·dz_factor
  float* sums;                                ///< [du, ∂Δ, y][partial sum]

  __device__ GradientTiles(float4* shared, const GeneralBackwardPlan& plan)
      : B(reinterpret_cast<Value*>(shared)),
        C(B + plan.tile.projection_values()),
        exchange(C + plan.tile.projection_values()),
        totals(exchange + plan.exchange_values()),
        u(reinterpret_cast<float*>(totals + plan.total_values())),
        delta(u + plan.tile.sequence_floats()),
        slope(delta + plan.tile.sequence_floats()),
        dy(slope + plan.tile.sequence_floats()),
        dz_factor(dy + plan.tile.sequence_floats()),
        sums(dz_factor + plan.tile.sequence_floats()) {}

  /// The sum over all states; which as in kBackwardSums.
  __device__ float sum(int which, int at, const GeneralPlan& plan) const {
    const float* partials = sums + which * plan.partials() * plan.sequence_floats() + at;
    return plan.partials() == 2 ? partials[0] + partials[plan.sequence_floats()] : partials[0];
  }
};

template <class Io, int in_flight, class Value>
__device__ void stage_gradient_tile(const GradientTiles<Value>& tiles, const ScanGradientArgs& args,
                                    const ThreadCoordinates& own, std::int64_t start, int valid,
                                    const GeneralPlan& plan, DType io) {
  const ScanArgs& scan = args.scan;
  using Loader = ProjectionLoader<StoredProjection<Io, Value>, Value, in_flight>;
  Loader load_B(tiles.B, scan.B, scan.variable_b, scan.b_strides, own, start, valid, scan.dstate, plan, io);
  Loader load_C(tiles.C, scan.C, scan.variable_c, scan.c_strides, own, start, valid, scan.dstate, plan, io);
  stage_sequences<Io, 4>(
      {scan.u, scan.delta, args.dout, scan.z}, scan, own, start, valid, plan, io,
      [&](int at, bool exists, const float(&loaded)[4]) {
        const auto [u, x, dout, z] = loaded;
        const ValueSlope step = scan.delta_softplus ? softplus_slope(x) : ValueSlope{x, 1.0F};
        const ValueSlope gate = scan.z != nullptr ? silu_slope(z) : ValueSlope{1.0F, 0.0F};
        tiles.u[at] = exists ? u : 0.0F;
        tiles.delta[at] = exists ? step.value : 0.0F;
        tiles.slope[at] = exists ? step.slope : 0.0F;
        tiles.dy[at] = exists ? dout * gate.value : 0.0F;
        tiles.dz_factor[at] = dout * gate.slope;
      });
  load_B.finish();
  load_C.finish();
}

/// A, and B and C where they are constant.
template <class Value>
__device__ void load_all_constants(Value (&A)[kThreadStates], Value (&B)[kThreadStates],
                                   Value (&C)[kThreadStates], const ScanArgs& scan,
                                   const ThreadCoordinates& own) {
  load_states(A, values_of<Value>(scan.A), own.channel_state(scan), own.count);
  if (!scan.variable_b) load_constants(B, scan.B, scan.b_strides, own);
  if (!scan.variable_c) load_constants(C, scan.C, scan.c_strides, own);
}

/// `count` states to (B, D, N), where there is one.
template <class Value>
__device__ void store_states(float* to, const Value (&states)[kThreadStates], std::int64_t at, int count) {
  if (to == nullptr) return;
#pragma unroll
  for (int s = 0; s < kThreadStates; ++s)
    if (s < count) reinterpret_cast<Value*>(to)[at + s] = states[s];
}

/// All segments at once, each from zero: h at its end and the product of its decays, for those but the last;
/// and for those but the first what it adds to the carry at its start, Σ_t conj(Π_{s≤t} Ā_s)·k·dy_t·conj(C_t),
/// and the same product. A block for each segment, blockIdx.y; tiles as in gradient_kernel.
template <class Value, Family family, bool fixed>
__global__ void __launch_bounds__(kGeneralMaxThreads, kGradientBlocksPerSm<Value>)
    segment_kernel(const ScanGradientArgs args, const DType io, const GeneralBackwardPlan given,
                   const MethodParameters method, float* workspace, const GeneralBackwardWorkspace at) {
  extern __shared__ float4 shared[];
  const ScanArgs& scan = args.scan;
  const GeneralBackwardPlan backward = known<Value, fixed>(given);
  const GeneralPlan plan = backward.tile;
  const GradientTiles<Value> tiles(shared, backward);
  const ThreadCoordinates own(scan, plan);
  const SegmentRange range = backward.segment_of({0, scan.seqlen}, blockIdx.y);
  const int row = own.channel * plan.sequence_pitch();

  Value A[kThreadStates], B[kThreadStates] = {}, C[kThreadStates] = {};
  load_all_constants(A, B, C, scan, own);
  Value h[kThreadStates] = {}, carry[kThreadStates] = {}, product[kThreadStates];
#pragma unroll
  for (int s = 0; s < kThreadStates; ++s) product[s] = Value{} + 1.0F;
  for (std::int64_t start = range.begin; start < range.end; start += plan.steps()) {
    const int valid = steps_within(start, plan.steps(), range.end);
    with_io<!fixed>(io, [&]<class Io>(std::type_identity<Io>) {
      stage_gradient_tile<Io, fixed ? 2 : kInFlight>(tiles, args, own, start, valid, plan, io);
    });
    __syncthreads();
#pragma unroll(fixed ? 4 : 1)
    for (int t = 0; t < plan.steps(); ++t) {
      const float u = tiles.u[row + t];
      const float dy = kOutputFactor<Value> * tiles.dy[row + t];
      const StepDerivative<family> step(method, tiles.delta[row + t]);
      if (scan.variable_b) load_vectors(B, tiles.B + t * plan.projection_pitch() + own.state);
      if (scan.variable_c) load_vectors(C, tiles.C + t * plan.projection_pitch() + own.state);
#pragma unroll
      for (int s = 0; s < kThreadStates; ++s) {
        const auto [decay, input, previous] = step(A[s]);
        h[s] = decay.value * h[s] + (u * input.value) * B[s];
        product[s] = product[s] * decay.value;
        carry[s] = after_segment(conjugate(product[s]), dy * conjugate(C[s]), carry[s]);
      }
    }
    __syncthreads();
  }
  const std::int64_t segment = backward.sums_at(range.begin);
  const std::int64_t state_at = own.batch_state(scan);
  if (segment + 1 < backward.segments()) {
    const std::int64_t to = segment * backward.states() + state_at;
    store_states(workspace + at.starts, h, to, own.count);
    store_states(workspace + at.start_decays, product, to, own.count);
  }
  if (segment == 0) return;
  const std::int64_t to = backward.carry_at(range.begin) * backward.states() + state_at;
#pragma unroll
  for (int s = 0; s < kThreadStates; ++s) product[s] = conjugate(product[s]);
  store_states(workspace + at.carry, carry, to, own.count);
  store_states(workspace + at.carry_decays, product, to, own.count);
}

template <class Io, class Value>
__device__ void finish_sequences(const GradientTiles<Value>& tiles, const ScanGradientArgs& args,
                                 const ThreadCoordinates& own, std::int64_t start, int valid,
                                 const GeneralPlan& plan, DType io) {
  const ScanArgs& scan = args.scan;
  const TileShape shape = sequence_shape(scan, own, valid, plan);
  const std::int64_t origin = own.row + start * scan.sequence.time;
#pragma unroll 2
  for (int i = threadIdx.x; i < shape.count(); i += plan.threads()) {
    const TileShape::Element e = shape.element(i);
    if (!shape.exists(e)) continue;
    const int at = e.row * plan.sequence_pitch() + e.step;
    const std::int64_t to = origin + shape.offset(e);
    const float D = scan.D != nullptr ? scan.D[own.block.first + e.row] : 0.0F;
    store_element(static_cast<Io*>(args.du) + to, tiles.sum(0, at, plan) + D * tiles.dy[at], io);
    store_element(static_cast<Io*>(args.ddelta) + to, tiles.sum(1, at, plan) * tiles.slope[at], io);
    if (scan.z == nullptr) continue;
    const float y = kOutputFactor<Value> * tiles.sum(2, at, plan) + D * tiles.u[at];
    store_element(static_cast<Io*>(args.dz) + to, y * tiles.dz_factor[at], io);
  }
}

/// The block's shares of dB (which 0) or dC (1) of a tile: the sums over its warps.
template <class Value>
__device__ void store_shares(Value* to, int which, const GradientTiles<Value>& tiles, int valid,
                             const GeneralBackwardPlan& plan) {
  const int states = plan.tile.states();
#pragma unroll 2
  for (int i = threadIdx.x; i < valid * states; i += plan.tile.threads()) {
    const int n = i & (states - 1);
    const int step = i >> plan.tile.states_log2();
    const Value* sums =
        tiles.exchange + step * plan.exchange_pitch() + plan.sum_at(which, n & (plan.states_in_warp() - 1));
    Value sum{};
    for (int warp = plan.first_warp_of(n); warp < plan.warps(); warp += plan.warp_stride())
      sum = sum + sums[warp * plan.warp_values()];
    to[i] = sum;
  }
}

template <class Value>
__device__ void add_to(Value (&sums)[kThreadStates], const Value* terms) {
#pragma unroll
  for (int s = 0; s < kThreadStates; ++s) sums[s] = sums[s] + terms[s];
}

/// The steps of a tile that there are.
struct TileSteps {
  std::int64_t start;
  int valid;
};

/// Gradients along time of a tile, and the block's shares of dB and dC, those at `share_at`.
template <bool joins, class Value>
__device__ __forceinline__ void finish_tile(const GradientTiles<Value>& tiles, const ScanGradientArgs& args,
                                            DType io, const ThreadCoordinates& own,
                                            const GeneralBackwardPlan& plan, const TileSteps& steps,
                                            Value* shares_B, Value* shares_C, std::int64_t share_at) {
  with_io<joins>(io, [&]<class Io>(std::type_identity<Io>) {
    finish_sequences<Io>(tiles, args, own, steps.start, steps.valid, plan.tile, io);
  });
  if (args.scan.variable_b) store_shares(shares_B + share_at, 0, tiles, steps.valid, plan);
  if (args.scan.variable_c) store_shares(shares_C + share_at, 1, tiles, steps.valid, plan);
}

/// Whether c is Δ for all states.
template <Family family>
constexpr bool kSharedGain = family == Family::zoh;

/// What the gradients of one step take of a channel.
struct ChannelStep {
  float u, dy, delta;
};
/// … and of one of its states.
template <class Value>
struct StateValues {
  Value A, B, C;
  Value h, h_before;  ///< after the step and before it
  Value before;       ///< u·B of the step before
};
/// What one state passes on to the step before: conj(Ā)·g, and conj(c')·g for methods of two samples.
template <class Value>
struct Carry {
  Value& decay;
  Value& previous;
};
/// What one step adds to the sums over a thread's states, and gives for each state.
template <class Value>
struct StepSums {
  float channel[4] = {};                 ///< du, ∂Δ, y
  float gain = 0.0F;                     ///< Σ Re g·conj(B), where all states share c
  Value projections[2 * kThreadStates];  ///< dB, dC

  __device__ void add_gain(const ChannelStep& at) {
    channel[0] = at.delta * gain;
    channel[1] += at.u * gain;
  }
};

/// One state, one step back: the carry that enters becomes that which leaves; all that its g gives.
template <Family family, class Value>
__device__ __forceinline__ void state_back(const StepDerivative<family>& step, const ChannelStep& at, int s,
                                           const StateValues<Value>& v, const Carry<Value>& carry, Value& dA,
                                           StepSums<Value>& sums) {
  const auto [decay, input, previous] = step(v.A);
  const Value g = (kOutputFactor<Value> * at.dy) * conjugate(v.C) + carry.decay;
  carry.decay = conjugate(decay.value) * g;
  if constexpr (family == Family::bilinear) {
    const Value by_decay = g * conjugate(v.h_before);
    dA = dA + by_decay * conjugate(decay.by_A);
    sums.channel[1] += real_part(by_decay * conjugate(decay.by_delta));
  } else {  // e^z is its own derivative
    const Value by_z = carry.decay * conjugate(v.h_before);
    dA = dA + at.delta * by_z;
    sums.channel[1] += real_part(by_z * conjugate(v.A));
  }
  const Value by_B = g * conjugate(v.B);
  if constexpr (kSharedGain<family>) {
    sums.gain += real_part(by_B);
    sums.projections[s] = (at.u * input.value) * g;
  } else {
    const Value by_input = at.u * by_B;
    if constexpr (input_varies(family)) dA = dA + by_input * conjugate(input.by_A);
    sums.channel[1] += real_part(conjugate(input.by_delta) * by_input);
    Value by_product = conjugate(input.value) * g;
    if constexpr (two_samples(family)) {
      const Value by_previous = g * conjugate(v.before);
      dA = dA + by_previous * conjugate(previous.by_A);
      sums.channel[1] += real_part(by_previous * conjugate(previous.by_delta));
      by_product = by_product + carry.previous;
      carry.previous = conjugate(previous.value) * g;
    }
    sums.channel[0] += real_part(by_product * conjugate(v.B));
    sums.projections[s] = at.u * by_product;
  }
  sums.channel[2] += real_product(v.C, v.h);
  sums.projections[kThreadStates + s] = (kOutputFactor<Value> * at.dy) * conjugate(v.h);
}

/// What the segment that ends at step `end` takes over from the one after it, or from dlast_state.
template <Family family, class Value>
__device__ void load_carries(Value (&carry)[kThreadStates], Value (&previous_carry)[kThreadStates],
                             const ScanGradientArgs& args, const GeneralBackwardPlan& plan,
                             const float* workspace, const GeneralBackwardWorkspace& at, std::int64_t end,
                             std::int64_t state_at, int count) {
  const bool is_last_in_time = end == args.scan.seqlen;
  load_states(carry,
              is_last_in_time ? values_of<Value>(args.dlast_state)
                              : values_of<Value>(workspace + at.carry) + plan.carry_at(end) * plan.states(),
              state_at, count);
  if constexpr (two_samples(family))
    if (!is_last_in_time)
      load_states(previous_carry, values_of<Value>(workspace + at.previous_carry), state_at, count);
}

/// A thread's sums over time that stay in registers while it goes over a segment, and where they are kept
/// between segments: those of dD and ddelta_bias, for one lane of each partial sum of a channel.
struct ChannelTotals {
  float *kept_dD, *kept_bias;
  bool keeps;
  int partial;
  float dD = 0.0F, bias = 0.0F;

  __device__ ChannelTotals(const ScanArgs& scan, const GeneralPlan& plan, const ThreadCoordinates& own,
                           float* workspace, const GeneralBackwardWorkspace& at, std::int64_t sums)
      : keeps(own.channel < own.block.count && (plan.lane_of(threadIdx.x) & (plan.lanes_in_warp() - 1)) == 0),
        partial(plan.partial_of(threadIdx.x)) {
    const std::int64_t b = sums * scan.batch + own.block.b;
    kept_dD = workspace + at.dD + b * scan.dim + own.d;
    kept_bias = workspace + at.ddelta_bias + (b * plan.partials() + partial) * scan.dim + own.d;
  }
  __device__ void load() {
    dD = keeps ? *kept_dD : 0.0F;
    bias = keeps ? *kept_bias : 0.0F;
  }
  __device__ void save(const GeneralPlan& plan) {
    for (int distance = plan.lanes_in_warp() / 2; distance > 0; distance /= 2)
      bias += shuffle_xor(bias, distance);
    if (keeps) *kept_bias = bias;
    if (keeps && partial == 0) *kept_dD = dD;
  }
};

template <class Value, Family family, bool fixed>
__global__ void __launch_bounds__(kGeneralMaxThreads, kGradientBlocksPerSm<Value>)
    gradient_kernel(const ScanGradientArgs args, const DType io, const GeneralBackwardPlan given,
                    const MethodParameters method, const SegmentRange span, float* workspace,
                    const GeneralBackwardWorkspace at) {
  extern __shared__ float4 shared[];
  const ScanArgs& scan = args.scan;
  const GeneralBackwardPlan backward = known<Value, fixed>(given);
  const GeneralPlan plan = backward.tile;
  const GradientTiles<Value> tiles(shared, backward);
  const Totals<Value> totals(tiles.totals, backward);
  const ThreadCoordinates own(scan, plan);
  const std::int64_t thread_at = own.grid_state(plan);
  const std::int64_t state_at = own.batch_state(scan);
  const auto in_workspace = [&](std::int64_t where) { return reinterpret_cast<Value*>(workspace + where); };
  const SegmentRange range = backward.segment_of(span, blockIdx.y);
  const bool is_first_done = range.end == scan.seqlen || backward.cut();
  const std::int64_t sums_at = backward.sums_at(range.begin) * backward.states();

  Value A[kThreadStates], B[kThreadStates] = {}, C[kThreadStates] = {};
  load_all_constants(A, B, C, scan, own);
  Value carry[kThreadStates];                                 // conj(Ā)·g of the step after
  [[maybe_unused]] Value previous_carry[kThreadStates] = {};  // conj(c')·g
  load_carries<family>(carry, previous_carry, args, backward, workspace, at, range.end, state_at, own.count);
  const int total_C = backward.constant_b ? 2 : 1;
  totals.for_each(backward, at, [&](int index, std::int64_t where) {
    totals.load(index, is_first_done ? nullptr : workspace + where, state_at, own.count);
  });
  ChannelTotals channel(scan, plan, own, workspace, at, backward.sums_at(range.begin));
  if (!is_first_done) channel.load();

  Value* const exchange = tiles.exchange + (threadIdx.x >> kWarpLanesLog2) * backward.warp_values();
  Value* const own_states = exchange + (threadIdx.x & 31) * kThreadStates;
  const int row = own.channel * plan.sequence_pitch();
  const auto load_B = [&](int t) {
    if (scan.variable_b) load_vectors(B, tiles.B + t * plan.projection_pitch() + own.state);
  };

  for (std::int64_t tile = ceil_div(range.end - range.begin, plan.steps()) - 1; tile >= 0; --tile) {
    const std::int64_t start = range.begin + tile * plan.steps();
    const int valid = steps_within(start, plan.steps(), range.end);
    // No barrier between the end of a tile and the start of the next: a thread stages what it alone finished,
    // and finishing reads nothing else that is staged.
    Value h[kThreadStates];
    load_vectors(
        h, in_workspace(at.tile_states + (blockIdx.y * backward.tiles() + tile) * backward.thread_floats()) +
               thread_at);
    [[maybe_unused]] Value before_tile[kThreadStates] = {};  // u·B
    if constexpr (two_samples(family))
      if (start > 0) load_products<!fixed>(before_tile, B, scan, io, own, start - 1);
    with_io<!fixed>(io, [&]<class Io>(std::type_identity<Io>) {
      stage_gradient_tile<Io, fixed ? 2 : kInFlight>(tiles, args, own, start, valid, plan, io);
    });
    __syncthreads();
    [[maybe_unused]] Value before[kThreadStates];
#pragma unroll
    for (int s = 0; s < kThreadStates; ++s) before[s] = before_tile[s];
#pragma unroll(fixed ? 4 : 1)
    for (int t = 0; t < plan.steps(); ++t) {
      store_vectors(own_states + t * backward.exchange_pitch(), h);
      const StepDerivative<family> step(method, tiles.delta[row + t]);
      load_B(t);
#pragma unroll
      for (int s = 0; s < kThreadStates; ++s) advance(h[s], before[s], step, A[s], tiles.u[row + t], B[s]);
    }

    Value dA[kThreadStates] = {}, dB[kThreadStates] = {}, dC[kThreadStates] = {};
    float dD = 0.0F, bias = 0.0F;
#pragma unroll(fixed ? 2 : 1)
    for (int t = plan.steps() - 1; t >= 0; --t) {
      const ChannelStep own_step{tiles.u[row + t], tiles.dy[row + t], tiles.delta[row + t]};
      const StepDerivative<family> step(method, own_step.delta);
      if constexpr (two_samples(family)) {
        if (t > 0) load_B(t - 1);
#pragma unroll
        for (int s = 0; s < kThreadStates; ++s)
          before[s] = t > 0 ? tiles.u[row + t - 1] * B[s] : before_tile[s];
      }
      load_B(t);
      if (scan.variable_c) load_vectors(C, tiles.C + t * plan.projection_pitch() + own.state);
      Value h_before[kThreadStates];
      load_vectors(h_before, own_states + t * backward.exchange_pitch());
      StepSums<Value> sums;
#pragma unroll
      for (int s = 0; s < kThreadStates; ++s) {
        state_back(step, own_step, s, StateValues<Value>{A[s], B[s], C[s], h[s], h_before[s], before[s]},
                   Carry<Value>{carry[s], previous_carry[s]}, dA[s], sums);
        h[s] = h_before[s];
      }
      if constexpr (kSharedGain<family>) sums.add_gain(own_step);
      if (backward.constant_b) add_to(dB, sums.projections);
      if (backward.constant_c) add_to(dC, sums.projections + kThreadStates);
      dD += own_step.dy * own_step.u;
      bias += sums.channel[1] * tiles.slope[row + t];
      add_lanes(sums.channel, tiles.sums + row + t, plan);
      if (scan.variable_b || scan.variable_c) {
        __syncwarp();  // all lanes have their states of this step
        add_channels(sums.projections, exchange + t * backward.exchange_pitch(), backward);
      }
    }
    totals.add(0, dA);
    if (backward.constant_b) totals.add(1, dB);
    if (backward.constant_c) totals.add(total_C, dC);
    channel.dD += dD;
    channel.bias += bias;
    __syncthreads();
    finish_tile<!fixed, Value>(tiles, args, io, own, backward, {.start = start, .valid = valid},
                               in_workspace(at.shares_B), in_workspace(at.shares_C),
                               (blockIdx.x * backward.span() + start - span.begin) * plan.states());
  }
  // What the segment before this one needs, or the final sums.
  if (!backward.cut()) store_states(workspace + at.carry, carry, state_at, own.count);
  if constexpr (two_samples(family))
    store_states(workspace + at.previous_carry, previous_carry, state_at, own.count);
  totals.for_each(backward, at, [&](int index, std::int64_t where) {
    totals.save(index, workspace + where, sums_at + state_at, own.count);
  });
  channel.save(plan);
  if (range.begin == 0) store_states(args.dinitial_state, carry, state_at, own.count);
}

template <class Value, Family family, bool fixed>
GeneralBackwardKernels kernels_of_family() {
  GeneralBackwardKernels kernels{forward_kernel<Value, family, fixed>, nullptr,
                                 gradient_kernel<Value, family, fixed>};
  if constexpr (!two_samples(family)) kernels.segment = segment_kernel<Value, family, fixed>;
  return kernels;
}

template <class Value>
GeneralBackwardKernels general_backward_kernels(MethodId method, const GeneralBackwardPlan& plan) {
  return with_family(method, [&]<Family family>(std::integral_constant<Family, family>) {
    if constexpr (std::is_same_v<Value, float>)
      if (has_fixed_sizes(plan)) return kernels_of_family<Value, family, true>();
    return kernels_of_family<Value, family, false>();
  });
}

}  // namespace ssmbench::fused_bwd_general
