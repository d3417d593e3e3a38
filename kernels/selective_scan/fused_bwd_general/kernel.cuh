#pragma once

// The kernels of cuda-fused for selective_scan_bwd: every method, real and complex. Channels across threads
// and sequential in time as in fused_kernel.cuh, with the same threads:
//
//   block    up to 128 threads: channels of one group times lanes of 4 states; at dstate 16 four lanes
//
//     thread      0      1      2       3     |   4      5   ...
//     channel                0                |       1      ...
//     states    0..3   4..7   8..11  12..15   | 0..3   4..7  ...
//
// Going back in time needs the states, last step first. They are kept at few places and computed again from
// there, in two levels, so that memory does not grow with the length:
//
//   0             S             2·S           L
//   ├────────────►├────────────►│               forward_kernel: states at segments, if there are several
//                               ├──►├──►├──►│   forward_kernel: states at the tiles of one segment
//                               ◄───◄───◄───    gradient_kernel, last tile first
//                 ├──►├──►├──►├──►              then the segment before, …
//                 ◄───◄───◄───◄───
//
// Where even the states at segments are too many, there are up to three more levels above: forward_kernel
// keeps the states at ranges of several segments, and those at segments are computed again range by range.
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
// unrolled. For real states and dstates of 9 to 16 the plan is a compile-time constant, which spares a
// third of the instructions.
//
// In both exchanges a thread gives half of its sums away at each step and adds what it gets to the other
// half, so that 8 sums over 8 channels take 7 shuffles and not 24. dB and dC of a group are the sums of its
// blocks' shares, in order (share_kernel, fused_bwd.cu); dA, dD, ddelta_bias, constant dB and dC are summed
// per tile in registers, over tiles in shared memory, over segments in the workspace, and over batches at
// last. No atomics, and all orders are fixed, so that results are bitwise the same in every run.
//
// Registers: h, A, B, C, carry and the sums of dA, dB, dC: 32 floats, 40 for methods of two samples, twice
// that when complex; capped at 128, 168 when complex. Shared memory: 56 KB at most (fused_bwd_map.h), most of
// it the states of a tile, so that four blocks share an SM.

#include "kernels/common/discretize_derivative.h"
#include "kernels/selective_scan/fused_bwd_general/map.h"
#include "kernels/selective_scan/fused_bwd_general/stage.cuh"
#include "kernels/selective_scan/fused_bwd_general/sums.cuh"

namespace ssmbench {

using FusedForwardKernel = void (*)(ScanArgs, DType, FusedBackwardPlan, MethodParameters, StateRun);
using FusedGradientKernel = void (*)(ScanGradientArgs, DType, FusedBackwardPlan, MethodParameters,
                                     SegmentRange, float* workspace, FusedBackwardWorkspace);

struct FusedBackwardKernels {
  FusedForwardKernel forward;
  FusedGradientKernel gradient;
};

/// The kernels for states of type Value: float or Complex.
template <class Value>
FusedBackwardKernels fused_backward_kernels(MethodId method, const FusedBackwardPlan& plan);

namespace fused_bwd {

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
SSMBENCH_HD constexpr FusedBackwardPlan with_fixed_sizes(FusedBackwardPlan plan) {
  plan.tile.lanes_log2 = 2;
  plan.tile.channels_log2 = 5;
  plan.tile.steps_log2 = 4;
  plan.forward_steps_log2 = 5;
  return plan;
}
inline bool has_fixed_sizes(const FusedBackwardPlan& plan) {
  const FusedBackwardPlan fixed = with_fixed_sizes(plan);
  return plan.tile.lanes_log2 == fixed.tile.lanes_log2 &&
         plan.tile.channels_log2 == fixed.tile.channels_log2 &&
         plan.tile.steps_log2 == fixed.tile.steps_log2 && plan.forward_steps_log2 == fixed.forward_steps_log2;
}

/// The plan with what this instance of a kernel knows of it.
template <class Value, bool fixed>
__device__ FusedBackwardPlan known(FusedBackwardPlan plan) {
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
__global__ void __launch_bounds__(kFusedMaxThreads, kForwardBlocksPerSm<Value>)
    forward_kernel(const ScanArgs args, const DType io, const FusedBackwardPlan given,
                   const MethodParameters method, const StateRun run) {
  extern __shared__ float4 shared[];
  const FusedBackwardPlan backward = known<Value, fixed>(given);
  const FusedPlan plan = backward.forward_tile();
  auto* tile_B = reinterpret_cast<Value*>(shared);
  auto* tile_u = reinterpret_cast<float*>(tile_B + plan.projection_values());
  float* tile_delta = tile_u + plan.sequence_floats();
  const Place place(args, plan);
  const std::int64_t thread_at = place.in_grid(plan);

  Value h[kFusedStates], A[kFusedStates], B[kFusedStates] = {};
  [[maybe_unused]] Value before[kFusedStates] = {};  // u·B of the step before
  if (run.from != nullptr)
    load_states(h, values<Value>(run.from) + thread_at);
  else
    load_states(h, values<Value>(args.initial_state), place.in_batches(args), place.count);
  load_states(A, values<Value>(args.A), place.in_channels(args), place.count);
  if (!args.variable_b) load_constants(B, args.B, args.b_strides, place);
  if constexpr (two_samples(family))
    if (run.begin > 0) load_products(before, B, args, io, place, run.begin - 1);

  Value* to = reinterpret_cast<Value*>(run.to) + thread_at;
  for (std::int64_t start = run.begin; start < run.last; start += plan.steps()) {
    const int valid = steps_within(start, plan.steps(), run.last);
    with_io(io, [&]<class Io>(std::type_identity<Io>) {
      ProjectionStage<StoredProjection<Io, Value>, Value, kInFlight> stage_B(
          tile_B, args.B, args.variable_b, args.b_strides, place, start, valid, args.dstate, plan);
      stage_sequences<Io, 2>({args.u, args.delta}, args, place, start, valid, plan,
                             [&](int at, bool exists, const float(&loaded)[2]) {
                               const auto [u, x] = loaded;
                               const float delta = args.delta_softplus ? softplus_slope(x).value : x;
                               tile_u[at] = exists ? u : 0.0F;
                               tile_delta[at] = exists ? delta : 0.0F;
                             });
      stage_B.finish();
    });
    __syncthreads();

    for (int first = 0; first < valid; first += backward.tile.steps()) {
      if (((start - run.begin + first) & (run.every - 1)) == 0) {
        store_states(to, h);
        to += backward.thread_floats() / backward.tile.value_floats;
      }
#pragma unroll(fixed ? 4 : 1)
      for (int t = first; t < first + backward.tile.steps(); ++t) {
        const int at = place.channel * plan.sequence_pitch() + t;
        const float u = tile_u[at];
        const StepDerivative<family> step(method, tile_delta[at]);
        if (args.variable_b) load_states(B, tile_B + t * plan.projection_pitch() + place.state);
#pragma unroll
        for (int s = 0; s < kFusedStates; ++s) advance(h[s], before[s], step, A[s], u, B[s]);
      }
    }
    __syncthreads();
  }
  store_states(to, h);
}

/// Shared memory of the gradient kernel, laid out as FusedBackwardPlan says.
template <class Value>
struct GradientTiles {
  Value *B, *C, *exchange, *totals;
  float *u, *delta, *slope, *dy, *dz_factor;  ///< slope: of Δ by delta; dz = y·dz_factor
  float* sums;                                ///< [du, ∂Δ, y][part]

  __device__ GradientTiles(float4* shared, const FusedBackwardPlan& plan)
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

  /// The sum over all states; which as in kFusedBackwardSums.
  __device__ float sum(int which, int at, const FusedPlan& plan) const {
    const float* parts = sums + which * plan.parts() * plan.sequence_floats() + at;
    return plan.parts() == 2 ? parts[0] + parts[plan.sequence_floats()] : parts[0];
  }
};

template <class Io, int in_flight, class Value>
__device__ void stage_gradient_tile(const GradientTiles<Value>& tiles, const ScanGradientArgs& args,
                                    const Place& place, std::int64_t start, int valid,
                                    const FusedPlan& plan) {
  const ScanArgs& scan = args.scan;
  using Stage = ProjectionStage<StoredProjection<Io, Value>, Value, in_flight>;
  Stage stage_B(tiles.B, scan.B, scan.variable_b, scan.b_strides, place, start, valid, scan.dstate, plan);
  Stage stage_C(tiles.C, scan.C, scan.variable_c, scan.c_strides, place, start, valid, scan.dstate, plan);
  stage_sequences<Io, 4>(
      {scan.u, scan.delta, args.dout, scan.z}, scan, place, start, valid, plan,
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
  stage_B.finish();
  stage_C.finish();
}

template <class Io, class Value>
__device__ void finish_sequences(const GradientTiles<Value>& tiles, const ScanGradientArgs& args,
                                 const Place& place, std::int64_t start, int valid, const FusedPlan& plan) {
  const ScanArgs& scan = args.scan;
  const TileShape shape = sequence_shape(scan, place, valid, plan);
  const std::int64_t origin = place.row + start * scan.sequence.time;
#pragma unroll 2
  for (int i = threadIdx.x; i < shape.count(); i += plan.threads()) {
    const TileShape::Element e = shape.element(i);
    if (!shape.exists(e)) continue;
    const int at = e.row * plan.sequence_pitch() + e.step;
    const std::int64_t to = origin + shape.offset(e);
    const float D = scan.D != nullptr ? scan.D[place.block.first + e.row] : 0.0F;
    static_cast<Io*>(args.du)[to] = from_float<Io>(tiles.sum(0, at, plan) + D * tiles.dy[at]);
    static_cast<Io*>(args.ddelta)[to] = from_float<Io>(tiles.sum(1, at, plan) * tiles.slope[at]);
    if (scan.z == nullptr) continue;
    const float y = kOutputFactor<Value> * tiles.sum(2, at, plan) + D * tiles.u[at];
    static_cast<Io*>(args.dz)[to] = from_float<Io>(y * tiles.dz_factor[at]);
  }
}

/// The block's shares of dB (which 0) or dC (1) of a tile: the sums over its warps.
template <class Value>
__device__ void store_shares(Value* to, int which, const GradientTiles<Value>& tiles, int valid,
                             const FusedBackwardPlan& plan) {
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
__device__ void add_to(Value (&sums)[kFusedStates], const Value* terms) {
#pragma unroll
  for (int s = 0; s < kFusedStates; ++s) sums[s] = sums[s] + terms[s];
}

template <class Value, Family family, bool fixed>
__global__ void __launch_bounds__(kFusedMaxThreads, kGradientBlocksPerSm<Value>)
    gradient_kernel(const ScanGradientArgs args, const DType io, const FusedBackwardPlan given,
                    const MethodParameters method, const SegmentRange range, float* workspace,
                    const FusedBackwardWorkspace at_workspace) {
  constexpr bool kSharedGain = family == Family::zoh;  // c is Δ for all states
  extern __shared__ float4 shared[];
  const ScanArgs& scan = args.scan;
  const FusedBackwardPlan backward = known<Value, fixed>(given);
  const FusedPlan plan = backward.tile;
  const GradientTiles<Value> tiles(shared, backward);
  const Totals<Value> totals(tiles.totals, backward);
  const Place place(scan, plan);
  const std::int64_t thread_at = place.in_grid(plan);
  const std::int64_t state_at = place.in_batches(scan);
  const auto of_workspace = [&](std::int64_t at) { return reinterpret_cast<Value*>(workspace + at); };
  const bool first = range.end == scan.seqlen;  // the first segment that is done is the last in time

  Value A[kFusedStates], B[kFusedStates] = {}, C[kFusedStates] = {};
  load_states(A, values<Value>(scan.A), place.in_channels(scan), place.count);
  if (!scan.variable_b) load_constants(B, scan.B, scan.b_strides, place);
  if (!scan.variable_c) load_constants(C, scan.C, scan.c_strides, place);

  Value carry[kFusedStates] = {};                            // conj(Ā)·g of the step after
  [[maybe_unused]] Value previous_carry[kFusedStates] = {};  // conj(c')·g
  if (!first) {
    load_states(carry, of_workspace(at_workspace.carry) + thread_at);
    if constexpr (two_samples(family))
      load_states(previous_carry, of_workspace(at_workspace.previous_carry) + thread_at);
  }
  totals.load(0, first ? nullptr : workspace + at_workspace.dA, state_at, place.count);
  const int total_C = backward.constant_b ? 2 : 1;
  if (backward.constant_b)
    totals.load(1, first ? nullptr : workspace + at_workspace.dB, state_at, place.count);
  if (backward.constant_c)
    totals.load(total_C, first ? nullptr : workspace + at_workspace.dC, state_at, place.count);
  // One lane of each part of a channel keeps these.
  const bool keeps =
      place.channel < place.block.count && (plan.lane_of(threadIdx.x) & (plan.lanes_in_warp() - 1)) == 0;
  const int part = plan.part_of(threadIdx.x);
  float* kept_dD = workspace + at_workspace.dD + place.block.b * scan.dim + place.d;
  float* kept_bias =
      workspace + at_workspace.ddelta_bias + (place.block.b * plan.parts() + part) * scan.dim + place.d;
  float total_dD = keeps && !first ? *kept_dD : 0.0F;
  float total_bias = keeps && !first ? *kept_bias : 0.0F;

  Value* exchange = tiles.exchange + (threadIdx.x >> kWarpLanesLog2) * backward.warp_values();
  Value* own_states = exchange + (threadIdx.x & 31) * kFusedStates;
  const int row = place.channel * plan.sequence_pitch();
  const auto load_B = [&](int t) {
    if (scan.variable_b) load_states(B, tiles.B + t * plan.projection_pitch() + place.state);
  };

  const std::int64_t tile_count = ceil_div(range.end - range.begin, plan.steps());
  for (std::int64_t tile = tile_count - 1; tile >= 0; --tile) {
    const std::int64_t start = range.begin + tile * plan.steps();
    const int valid = steps_within(start, plan.steps(), range.end);
    // No barrier between finish and the next stage: a thread stages what it alone finished, and finish reads
    // of the rest nothing that is staged.
    Value h[kFusedStates];
    load_states(h, of_workspace(at_workspace.tile_states + tile * backward.thread_floats()) + thread_at);
    [[maybe_unused]] Value before_tile[kFusedStates] = {};  // u·B
    if constexpr (two_samples(family))
      if (start > 0) load_products(before_tile, B, scan, io, place, start - 1);
    with_io(io, [&]<class Io>(std::type_identity<Io>) {
      stage_gradient_tile<Io, fixed ? 2 : kInFlight>(tiles, args, place, start, valid, plan);
    });
    __syncthreads();

    [[maybe_unused]] Value before[kFusedStates];
#pragma unroll
    for (int s = 0; s < kFusedStates; ++s) before[s] = before_tile[s];
#pragma unroll(fixed ? 4 : 1)
    for (int t = 0; t < plan.steps(); ++t) {
      store_states(own_states + t * backward.exchange_pitch(), h);
      const StepDerivative<family> step(method, tiles.delta[row + t]);
      load_B(t);
#pragma unroll
      for (int s = 0; s < kFusedStates; ++s) advance(h[s], before[s], step, A[s], tiles.u[row + t], B[s]);
    }

    Value dA[kFusedStates] = {}, dB[kFusedStates] = {}, dC[kFusedStates] = {};
    float dD = 0.0F;
    float bias = 0.0F;
#pragma unroll(fixed ? 2 : 1)
    for (int t = plan.steps() - 1; t >= 0; --t) {
      const float u = tiles.u[row + t];
      const float dy = tiles.dy[row + t];
      const float delta = tiles.delta[row + t];
      const StepDerivative<family> step(method, delta);
      if constexpr (two_samples(family)) {
        if (t > 0) load_B(t - 1);
#pragma unroll
        for (int s = 0; s < kFusedStates; ++s)
          before[s] = t > 0 ? tiles.u[row + t - 1] * B[s] : before_tile[s];
      }
      load_B(t);
      if (scan.variable_c) load_states(C, tiles.C + t * plan.projection_pitch() + place.state);
      Value h_before[kFusedStates];
      load_states(h_before, own_states + t * backward.exchange_pitch());

      float sums[4] = {};                       // du, ∂Δ, y
      float of_gain = 0.0F;                     // Σ Re g·conj(B)
      Value projection_sums[2 * kFusedStates];  // dB, dC
#pragma unroll
      for (int s = 0; s < kFusedStates; ++s) {
        const auto [decay, input, previous] = step(A[s]);
        const Value g = (kOutputFactor<Value> * dy) * conjugate(C[s]) + carry[s];
        carry[s] = conjugate(decay.value) * g;
        if constexpr (family == Family::bilinear) {
          const Value of_decay = g * conjugate(h_before[s]);
          dA[s] = dA[s] + of_decay * conjugate(decay.by_A);
          sums[1] += real_part(of_decay * conjugate(decay.by_delta));
        } else {  // e^z is its own derivative
          const Value of_z = carry[s] * conjugate(h_before[s]);
          dA[s] = dA[s] + delta * of_z;
          sums[1] += real_part(of_z * conjugate(A[s]));
        }
        const Value of_B = g * conjugate(B[s]);
        if constexpr (kSharedGain) {
          of_gain += real_part(of_B);
          projection_sums[s] = (u * input.value) * g;
        } else {
          const Value of_input = u * of_B;
          if constexpr (input_varies(family)) dA[s] = dA[s] + of_input * conjugate(input.by_A);
          sums[1] += real_part(conjugate(input.by_delta) * of_input);
          Value of_product = conjugate(input.value) * g;
          if constexpr (two_samples(family)) {
            const Value of_previous = g * conjugate(before[s]);
            dA[s] = dA[s] + of_previous * conjugate(previous.by_A);
            sums[1] += real_part(of_previous * conjugate(previous.by_delta));
            of_product = of_product + previous_carry[s];
            previous_carry[s] = conjugate(previous.value) * g;
          }
          sums[0] += real_part(of_product * conjugate(B[s]));
          projection_sums[s] = u * of_product;
        }
        sums[2] += real_product(C[s], h[s]);
        projection_sums[kFusedStates + s] = (kOutputFactor<Value> * dy) * conjugate(h[s]);
        h[s] = h_before[s];
      }
      if constexpr (kSharedGain) {
        sums[0] = delta * of_gain;
        sums[1] += u * of_gain;
      }
      if (backward.constant_b) add_to(dB, projection_sums);
      if (backward.constant_c) add_to(dC, projection_sums + kFusedStates);
      dD += dy * u;
      bias += sums[1] * tiles.slope[row + t];
      add_lanes(sums, tiles.sums + row + t, plan);
      if (scan.variable_b || scan.variable_c) {
        __syncwarp();  // all lanes have their states of this step
        add_channels(projection_sums, exchange + t * backward.exchange_pitch(), backward);
      }
    }
    totals.add(0, dA);
    if (backward.constant_b) totals.add(1, dB);
    if (backward.constant_c) totals.add(total_C, dC);
    total_dD += dD;
    total_bias += bias;
    __syncthreads();

    with_io(io, [&]<class Io>(std::type_identity<Io>) {
      finish_sequences<Io>(tiles, args, place, start, valid, plan);
    });
    const std::int64_t share_at = (blockIdx.x * backward.segment() + tile * plan.steps()) * plan.states();
    if (scan.variable_b)
      store_shares(of_workspace(at_workspace.shares_B) + share_at, 0, tiles, valid, backward);
    if (scan.variable_c)
      store_shares(of_workspace(at_workspace.shares_C) + share_at, 1, tiles, valid, backward);
  }

  store_states(of_workspace(at_workspace.carry) + thread_at, carry);
  if constexpr (two_samples(family))
    store_states(of_workspace(at_workspace.previous_carry) + thread_at, previous_carry);
  totals.save(0, workspace + at_workspace.dA, state_at, place.count);
  if (backward.constant_b) totals.save(1, workspace + at_workspace.dB, state_at, place.count);
  if (backward.constant_c) totals.save(total_C, workspace + at_workspace.dC, state_at, place.count);
  for (int distance = plan.lanes_in_warp() / 2; distance > 0; distance /= 2)
    total_bias += shuffle_xor(total_bias, distance);
  if (keeps) *kept_bias = total_bias;
  if (keeps && part == 0) *kept_dD = total_dD;
  if (range.begin > 0 || args.dinitial_state == nullptr) return;
#pragma unroll
  for (int s = 0; s < kFusedStates; ++s)
    if (s < place.count) reinterpret_cast<Value*>(args.dinitial_state)[state_at + s] = carry[s];
}

}  // namespace fused_bwd

template <class Value>
FusedBackwardKernels fused_backward_kernels(MethodId method, const FusedBackwardPlan& plan) {
  using namespace fused_bwd;
  return with_family(method, [&]<Family family>(std::integral_constant<Family, family>) {
    if constexpr (std::is_same_v<Value, float>)
      if (has_fixed_sizes(plan))
        return FusedBackwardKernels{forward_kernel<Value, family, true>,
                                    gradient_kernel<Value, family, true>};
    return FusedBackwardKernels{forward_kernel<Value, family, false>, gradient_kernel<Value, family, false>};
  });
}

}  // namespace ssmbench
