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
// unrolled. For real states and dstates of 9 to 16 the plan is a compile-time constant, which spares a
// third of the instructions.
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

namespace ssmbench::fused_bwd_general {

using GeneralForwardKernel = void (*)(ScanArgs, DType, GeneralBackwardPlan, MethodParameters, StateRun);
using GeneralGradientKernel = void (*)(ScanGradientArgs, DType, GeneralBackwardPlan, MethodParameters,
                                       SegmentRange, float* workspace, GeneralBackwardWorkspace);

struct GeneralBackwardKernels {
  GeneralForwardKernel forward;
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
                   const MethodParameters method, const StateRun run) {
  extern __shared__ float4 shared[];
  const GeneralBackwardPlan backward = known<Value, fixed>(given);
  const GeneralPlan plan = backward.forward_tile();
  auto* tile_B = reinterpret_cast<Value*>(shared);
  auto* tile_u = reinterpret_cast<float*>(tile_B + plan.projection_values());
  float* tile_delta = tile_u + plan.sequence_floats();
  const ThreadCoordinates own(args, plan);
  const std::int64_t thread_at = own.grid_state(plan);

  Value h[kThreadStates], A[kThreadStates], B[kThreadStates] = {};
  [[maybe_unused]] Value before[kThreadStates] = {};  // u·B of the step before
  if (run.from != nullptr)
    load_vectors(h, values_of<Value>(run.from) + thread_at);
  else
    load_states(h, values_of<Value>(args.initial_state), own.batch_state(args), own.count);
  load_states(A, values_of<Value>(args.A), own.channel_state(args), own.count);
  if (!args.variable_b) load_constants(B, args.B, args.b_strides, own);
  if constexpr (two_samples(family))
    if (run.begin > 0) load_products(before, B, args, io, own, run.begin - 1);

  Value* to = reinterpret_cast<Value*>(run.to) + thread_at;
  for (std::int64_t start = run.begin; start < run.last; start += plan.steps()) {
    const int valid = steps_within(start, plan.steps(), run.last);
    with_io(io, [&]<class Io>(std::type_identity<Io>) {
      ProjectionLoader<StoredProjection<Io, Value>, Value, kInFlight> load_B(
          tile_B, args.B, args.variable_b, args.b_strides, own, start, valid, args.dstate, plan);
      stage_sequences<Io, 2>({args.u, args.delta}, args, own, start, valid, plan,
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
                                    const GeneralPlan& plan) {
  const ScanArgs& scan = args.scan;
  using Loader = ProjectionLoader<StoredProjection<Io, Value>, Value, in_flight>;
  Loader load_B(tiles.B, scan.B, scan.variable_b, scan.b_strides, own, start, valid, scan.dstate, plan);
  Loader load_C(tiles.C, scan.C, scan.variable_c, scan.c_strides, own, start, valid, scan.dstate, plan);
  stage_sequences<Io, 4>(
      {scan.u, scan.delta, args.dout, scan.z}, scan, own, start, valid, plan,
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

template <class Io, class Value>
__device__ void finish_sequences(const GradientTiles<Value>& tiles, const ScanGradientArgs& args,
                                 const ThreadCoordinates& own, std::int64_t start, int valid,
                                 const GeneralPlan& plan) {
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

/// A thread of gradient_kernel: its four states of one channel, from the last tile of a segment to the first.
template <class Value, Family family, bool fixed>
class GradientThread {
 public:
  using States = Value[kThreadStates];
  /// What a thread keeps of its states from tile to tile. Not members: the compiler keeps arrays in registers
  /// only where no scalar that it needs early lies beside them.
  struct ThreadStates {
    States A, B = {}, C = {};
    States carry = {};                            ///< conj(Ā)·g of the step after
    [[maybe_unused]] States previous_carry = {};  ///< conj(c')·g
  };

  __device__ __forceinline__ GradientThread(const ScanGradientArgs& args, DType io,
                                            const GeneralBackwardPlan& known_plan,
                                            const MethodParameters& method, const SegmentRange& range,
                                            float* workspace, const GeneralBackwardWorkspace& at,
                                            float4* shared)
      : args_(args),
        scan_(args.scan),
        io_(io),
        backward_(known_plan),
        plan_(backward_.tile),
        method_(method),
        range_(range),
        workspace_(workspace),
        at_(at),
        tiles_(shared, backward_),
        totals_(tiles_.totals, backward_),
        own_(scan_, plan_),
        thread_at_(own_.grid_state(plan_)),
        state_at_(own_.batch_state(scan_)),
        partial_(plan_.partial_of(threadIdx.x)),
        keeps_(own_.channel < own_.block.count &&
               (plan_.lane_of(threadIdx.x) & (plan_.lanes_in_warp() - 1)) == 0),
        kept_dD_(workspace + at.dD + own_.block.b * scan_.dim + own_.d),
        kept_bias_(workspace + at.ddelta_bias + (own_.block.b * plan_.partials() + partial_) * scan_.dim +
                   own_.d),
        exchange_(tiles_.exchange + (threadIdx.x >> kWarpLanesLog2) * backward_.warp_values()),
        own_states_(exchange_ + (threadIdx.x & 31) * kThreadStates),
        row_(own_.channel * plan_.sequence_pitch()) {}

  /// The constants, and what the segment after this one has left in the workspace.
  __device__ __forceinline__ void load_segment(ThreadStates& v) {
    load_states(v.A, values_of<Value>(scan_.A), own_.channel_state(scan_), own_.count);
    if (!scan_.variable_b) load_constants(v.B, scan_.B, scan_.b_strides, own_);
    if (!scan_.variable_c) load_constants(v.C, scan_.C, scan_.c_strides, own_);
    const bool is_last_in_time = range_.end == scan_.seqlen;  // and the first that is done
    if (!is_last_in_time) {
      load_vectors(v.carry, in_workspace(at_.carry) + thread_at_);
      if constexpr (two_samples(family))
        load_vectors(v.previous_carry, in_workspace(at_.previous_carry) + thread_at_);
    }
    const auto load_total = [&](int index, std::int64_t at) {
      totals_.load(index, is_last_in_time ? nullptr : workspace_ + at, state_at_, own_.count);
    };
    load_total(0, at_.dA);
    if (backward_.constant_b) load_total(1, at_.dB);
    if (backward_.constant_c) load_total(total_C(), at_.dC);
    total_dD_ = keeps_ && !is_last_in_time ? *kept_dD_ : 0.0F;
    total_bias_ = keeps_ && !is_last_in_time ? *kept_bias_ : 0.0F;
  }

  /// Everything for one tile of the segment. No barrier between its end and the next tile's start: a thread
  /// stages what it alone finished, and finishing reads nothing else that is staged.
  __device__ __forceinline__ void do_tile(std::int64_t tile, ThreadStates& v) {
    const std::int64_t start = range_.begin + tile * plan_.steps();
    const int valid = steps_within(start, plan_.steps(), range_.end);
    States h;
    load_vectors(h, in_workspace(at_.tile_states + tile * backward_.thread_floats()) + thread_at_);
    [[maybe_unused]] States before_tile = {};  // u·B
    if constexpr (two_samples(family))
      if (start > 0) load_products(before_tile, v.B, scan_, io_, own_, start - 1);
    with_io(io_, [&]<class Io>(std::type_identity<Io>) {
      stage_gradient_tile<Io, fixed ? 2 : kInFlight>(tiles_, args_, own_, start, valid, plan_);
    });
    __syncthreads();
    [[maybe_unused]] States before;
#pragma unroll
    for (int s = 0; s < kThreadStates; ++s) before[s] = before_tile[s];
    forward(h, before, v);
    back(h, before, before_tile, v);
    __syncthreads();
    finish_tile(tile, start, valid);
  }

  /// What the segment before this one needs, or the final sums.
  __device__ __forceinline__ void store_segment(const ThreadStates& v) {
    store_vectors(in_workspace(at_.carry) + thread_at_, v.carry);
    if constexpr (two_samples(family))
      store_vectors(in_workspace(at_.previous_carry) + thread_at_, v.previous_carry);
    totals_.save(0, workspace_ + at_.dA, state_at_, own_.count);
    if (backward_.constant_b) totals_.save(1, workspace_ + at_.dB, state_at_, own_.count);
    if (backward_.constant_c) totals_.save(total_C(), workspace_ + at_.dC, state_at_, own_.count);
    for (int distance = plan_.lanes_in_warp() / 2; distance > 0; distance /= 2)
      total_bias_ += shuffle_xor(total_bias_, distance);
    if (keeps_) *kept_bias_ = total_bias_;
    if (keeps_ && partial_ == 0) *kept_dD_ = total_dD_;
    if (range_.begin > 0 || args_.dinitial_state == nullptr) return;
#pragma unroll
    for (int s = 0; s < kThreadStates; ++s)
      if (s < own_.count) reinterpret_cast<Value*>(args_.dinitial_state)[state_at_ + s] = v.carry[s];
  }

 private:
  static constexpr bool kSharedGain = family == Family::zoh;  ///< c is Δ for all states

  /// Sums of a thread over the steps of a tile.
  struct TileSums {
    States dA = {}, dB = {}, dC = {};
  };
  struct TileScalars {
    float dD = 0.0F, bias = 0.0F;
  };
  /// Sums of one step: over the thread's states, and for each of its states those of dB and dC.
  struct StepSums {
    float of_step[4] = {};  ///< du, ∂Δ, y
    Value projections[2 * kThreadStates];
  };

  __device__ __forceinline__ Value* in_workspace(std::int64_t at) const {
    return reinterpret_cast<Value*>(workspace_ + at);
  }
  __device__ __forceinline__ int total_C() const {
    return backward_.constant_b ? 2 : 1;
  }
  __device__ __forceinline__ void load_B(int t, ThreadStates& v) const {
    if (scan_.variable_b) load_vectors(v.B, tiles_.B + t * plan_.projection_pitch() + own_.state);
  }

  /// h before every step, to shared memory; at the end h after the last.
  __device__ __forceinline__ void forward(States& h, States& before, ThreadStates& v) const {
#pragma unroll(fixed ? 4 : 1)
    for (int t = 0; t < plan_.steps(); ++t) {
      store_vectors(own_states_ + t * backward_.exchange_pitch(), h);
      const StepDerivative<family> step(method_, tiles_.delta[row_ + t]);
      load_B(t, v);
#pragma unroll
      for (int s = 0; s < kThreadStates; ++s)
        advance(h[s], before[s], step, v.A[s], tiles_.u[row_ + t], v.B[s]);
    }
  }

  __device__ __forceinline__ void back(States& h, States& before, const States& before_tile,
                                       ThreadStates& v) {
    TileSums sums;
    TileScalars scalars;
#pragma unroll(fixed ? 2 : 1)
    for (int t = plan_.steps() - 1; t >= 0; --t) step_back(t, h, before, before_tile, sums, scalars, v);
    totals_.add(0, sums.dA);
    if (backward_.constant_b) totals_.add(1, sums.dB);
    if (backward_.constant_c) totals_.add(total_C(), sums.dC);
    total_dD_ += scalars.dD;
    total_bias_ += scalars.bias;
  }

  /// One step back: h is that after it, and then that before it.
  __device__ __forceinline__ void step_back(int t, States& h, States& before, const States& before_tile,
                                            TileSums& tile, TileScalars& scalars, ThreadStates& v) const {
    const float u = tiles_.u[row_ + t];
    const float dy = tiles_.dy[row_ + t];
    const float delta = tiles_.delta[row_ + t];
    const StepDerivative<family> step(method_, delta);
    if constexpr (two_samples(family)) {
      if (t > 0) load_B(t - 1, v);
#pragma unroll
      for (int s = 0; s < kThreadStates; ++s)
        before[s] = t > 0 ? tiles_.u[row_ + t - 1] * v.B[s] : before_tile[s];
    }
    load_B(t, v);
    if (scan_.variable_c) load_vectors(v.C, tiles_.C + t * plan_.projection_pitch() + own_.state);
    States h_before;
    load_vectors(h_before, own_states_ + t * backward_.exchange_pitch());

    StepSums sums;
    float gain = 0.0F;  // Σ Re g·conj(B)
#pragma unroll
    for (int s = 0; s < kThreadStates; ++s) {
      state_back(s, step, {u, dy, delta}, h[s], h_before[s], before[s], tile.dA[s], sums, gain, v);
      h[s] = h_before[s];
    }
    if constexpr (kSharedGain) {
      sums.of_step[0] = delta * gain;
      sums.of_step[1] += u * gain;
    }
    if (backward_.constant_b) add_to(tile.dB, sums.projections);
    if (backward_.constant_c) add_to(tile.dC, sums.projections + kThreadStates);
    scalars.dD += dy * u;
    scalars.bias += sums.of_step[1] * tiles_.slope[row_ + t];
    add_lanes(sums.of_step, tiles_.sums + row_ + t, plan_);
    if (scan_.variable_b || scan_.variable_c) {
      __syncwarp();  // all lanes have their states of this step
      add_channels(sums.projections, exchange_ + t * backward_.exchange_pitch(), backward_);
    }
  }

  struct StepScalars {
    float u, dy, delta;
  };

  /// One state, one step back: g, the new carry, and all sums that g gives.
  __device__ __forceinline__ void state_back(int s, const StepDerivative<family>& step, const StepScalars& at,
                                             Value h, Value h_before, [[maybe_unused]] Value before,
                                             Value& dA, StepSums& sums, [[maybe_unused]] float& gain,
                                             ThreadStates& v) const {
    const auto [decay, input, previous] = step(v.A[s]);
    const Value g = (kOutputFactor<Value> * at.dy) * conjugate(v.C[s]) + v.carry[s];
    v.carry[s] = conjugate(decay.value) * g;
    if constexpr (family == Family::bilinear) {
      const Value by_decay = g * conjugate(h_before);
      dA = dA + by_decay * conjugate(decay.by_A);
      sums.of_step[1] += real_part(by_decay * conjugate(decay.by_delta));
    } else {  // e^z is its own derivative
      const Value by_z = v.carry[s] * conjugate(h_before);
      dA = dA + at.delta * by_z;
      sums.of_step[1] += real_part(by_z * conjugate(v.A[s]));
    }
    const Value by_B = g * conjugate(v.B[s]);
    if constexpr (kSharedGain) {
      gain += real_part(by_B);
      sums.projections[s] = (at.u * input.value) * g;
    } else {
      const Value by_input = at.u * by_B;
      if constexpr (input_varies(family)) dA = dA + by_input * conjugate(input.by_A);
      sums.of_step[1] += real_part(conjugate(input.by_delta) * by_input);
      Value by_product = conjugate(input.value) * g;
      if constexpr (two_samples(family)) {
        const Value by_previous = g * conjugate(before);
        dA = dA + by_previous * conjugate(previous.by_A);
        sums.of_step[1] += real_part(by_previous * conjugate(previous.by_delta));
        by_product = by_product + v.previous_carry[s];
        v.previous_carry[s] = conjugate(previous.value) * g;
      }
      sums.of_step[0] += real_part(by_product * conjugate(v.B[s]));
      sums.projections[s] = at.u * by_product;
    }
    sums.of_step[2] += real_product(v.C[s], h);
    sums.projections[kThreadStates + s] = (kOutputFactor<Value> * at.dy) * conjugate(h);
  }

  __device__ __forceinline__ void finish_tile(std::int64_t tile, std::int64_t start, int valid) {
    with_io(io_, [&]<class Io>(std::type_identity<Io>) {
      finish_sequences<Io>(tiles_, args_, own_, start, valid, plan_);
    });
    const std::int64_t share_at = (blockIdx.x * backward_.segment() + tile * plan_.steps()) * plan_.states();
    if (scan_.variable_b) store_shares(in_workspace(at_.shares_B) + share_at, 0, tiles_, valid, backward_);
    if (scan_.variable_c) store_shares(in_workspace(at_.shares_C) + share_at, 1, tiles_, valid, backward_);
  }

  const ScanGradientArgs& args_;
  const ScanArgs& scan_;
  const DType io_;
  const GeneralBackwardPlan backward_;
  const GeneralPlan plan_;
  const MethodParameters& method_;
  const SegmentRange& range_;
  float* const workspace_;
  const GeneralBackwardWorkspace& at_;
  const GradientTiles<Value> tiles_;
  const Totals<Value> totals_;
  const ThreadCoordinates own_;
  const std::int64_t thread_at_, state_at_;
  const int partial_;
  const bool keeps_;  ///< one lane of each partial sum of a channel keeps the sums over time
  float* const kept_dD_;
  float* const kept_bias_;
  Value* const exchange_;
  Value* const own_states_;
  const int row_;

  float total_dD_ = 0.0F, total_bias_ = 0.0F;
};

template <class Value, Family family, bool fixed>
__global__ void __launch_bounds__(kGeneralMaxThreads, kGradientBlocksPerSm<Value>)
    gradient_kernel(const ScanGradientArgs args, const DType io, const GeneralBackwardPlan given,
                    const MethodParameters method, const SegmentRange range, float* workspace,
                    const GeneralBackwardWorkspace at_workspace) {
  extern __shared__ float4 shared[];
  const GeneralBackwardPlan plan = known<Value, fixed>(given);
  GradientThread<Value, family, fixed> thread(args, io, plan, method, range, workspace, at_workspace, shared);
  typename GradientThread<Value, family, fixed>::ThreadStates values;
  thread.load_segment(values);
  const std::int64_t tiles = ceil_div(range.end - range.begin, plan.tile.steps());
  for (std::int64_t tile = tiles - 1; tile >= 0; --tile) thread.do_tile(tile, values);
  thread.store_segment(values);
}

template <class Value>
GeneralBackwardKernels general_backward_kernels(MethodId method, const GeneralBackwardPlan& plan) {
  return with_family(method, [&]<Family family>(std::integral_constant<Family, family>) {
    if constexpr (std::is_same_v<Value, float>)
      if (has_fixed_sizes(plan))
        return GeneralBackwardKernels{forward_kernel<Value, family, true>,
                                      gradient_kernel<Value, family, true>};
    return GeneralBackwardKernels{forward_kernel<Value, family, false>,
                                  gradient_kernel<Value, family, false>};
  });
}

}  // namespace ssmbench::fused_bwd_general
