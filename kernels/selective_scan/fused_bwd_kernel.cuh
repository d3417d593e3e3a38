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
//   time       0                 segment             2·segment                  L
//   states     ├──────────────────►├──────────────────►│                             forward_kernel, if there
//                                                                                    are several segments
//   segment                                            ├─►├─►├─►├─►├─►│              forward_kernel, every
//   tile gradients                                           ◄──◄──◄──◄──◄──              gradient_kernel
//                              (then the segment before)
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
#include "kernels/selective_scan/fused_bwd_map.h"
#include "kernels/selective_scan/fused_kernel.cuh"

namespace ssmbench {

/// Advances the states from step `begin` to step `last` and stores them at begin, begin + every, …, last.
/// `every` divides last − begin and is a power of two. Stored states are [place][block][thread][4].
struct StateRun {
  const float* from;  ///< states at begin, [block][thread][4]; null: the scan's initial states
  float* to;
  std::int64_t begin, last, every;
};

/// Steps [begin, end) of one segment.
struct SegmentRange {
  std::int64_t begin, end;
};

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

using fused::load_states;
using fused::values;
using ssmbench::to_float;

__device__ inline Complex to_float(Complex x) {
  return x;
}

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

/// with_io_type for device code: kernels are compiled once for all io dtypes, and only what touches memory
/// three times.
template <class Call>
__device__ void with_io(DType io, const Call& call) {
  if (io == DType::f32)
    call(std::type_identity<float>());
  else if (io == DType::f16)
    call(std::type_identity<__half>());
  else
    call(std::type_identity<__nv_bfloat16>());
}

/// B or C as it lies in memory when variable.
template <class Io, class Value>
using StoredProjection = std::conditional_t<std::is_same_v<Value, float>, Io, Value>;

__device__ inline void store_states(float* to, const float (&from)[kFusedStates]) {
  *reinterpret_cast<float4*>(to) = {from[0], from[1], from[2], from[3]};
}
__device__ inline void store_states(Complex* to, const Complex (&from)[kFusedStates]) {
#pragma unroll
  for (int s = 0; s < kFusedStates; s += 2)
    *reinterpret_cast<float4*>(to + s) = {from[s].re, from[s].im, from[s + 1].re, from[s + 1].im};
}

__device__ inline float shuffle_xor(float value, int distance) {
  return __shfl_xor_sync(0xFFFFFFFFU, value, distance);
}
__device__ inline Complex shuffle_xor(Complex value, int distance) {
  return {shuffle_xor(value.re, distance), shuffle_xor(value.im, distance)};
}

/// Of 2·half sums, this thread keeps the upper half if `upper`, else the lower, and its partner at `distance`
/// the other; each adds the two threads' sums of what it keeps.
template <int half, class Value, int count>
__device__ void exchange_halves(Value (&sums)[count], int distance, bool upper) {
#pragma unroll
  for (int i = 0; i < half; ++i) {
    const Value given = upper ? sums[i] : sums[i + half];
    const Value kept = upper ? sums[i + half] : sums[i];
    sums[i] = kept + shuffle_xor(given, distance);
  }
}

/// f(x) and f'(x).
struct ValueSlope {
  float value, slope;
};

/// softplus, whose slope is the logistic function; both from e^-|x|, which never overflows.
__device__ inline ValueSlope softplus_slope(float x) {
  const float e = expf(-fabsf(x));
  return {fmaxf(x, 0.0F) + log1pf(e), (x < 0.0F ? e : 1.0F) * reciprocal(1.0F + e)};
}

/// silu: x·σ(x), σ(x)·(1 + x·σ(−x)).
__device__ inline ValueSlope silu_slope(float x) {
  const float e = expf(-fabsf(x));
  const float large = reciprocal(1.0F + e);
  const float small = e * large;
  const float open = x < 0.0F ? small : large;
  const float closed = x < 0.0F ? large : small;
  return {x * open, open * (1.0F + x * closed)};
}

/// Where a thread is.
struct Place {
  BlockChannels block;
  std::int64_t row;  ///< of the block's first channel in the (B, D, L) tensors
  int channel;       ///< of the block
  int state;         ///< first of four
  int count;         ///< states from there on that exist; the others keep zeros
  std::int64_t d;

  __device__ Place(const ScanArgs& args, const FusedPlan& plan)
      : block(block_channels(plan, blockIdx.x, args.groups, args.channels_per_group)),
        row(block.b * args.sequence.batch + block.first * args.sequence.dim),
        channel(plan.channel_of(threadIdx.x)),
        state(plan.first_state_of(threadIdx.x)),
        count(channel < block.count ? static_cast<int>(args.dstate) - state : 0),
        d(block.first + channel) {}

  /// In (D, N) tensors.
  __device__ std::int64_t in_channels(const ScanArgs& args) const { return d * args.dstate + state; }
  /// In (B, D, N) tensors.
  __device__ std::int64_t in_batches(const ScanArgs& args) const {
    return (block.b * args.dim + d) * args.dstate + state;
  }
  /// Among what all threads of the grid hold, in values.
  __device__ std::int64_t in_grid(const FusedPlan& plan) const {
    return (static_cast<std::int64_t>(blockIdx.x) * plan.threads() + threadIdx.x) * kFusedStates;
  }
};

template <class Value>
__device__ void load_constants(Value (&to)[kFusedStates], const void* source,
                               const ProjectionStrides& strides, const Place& place) {
  load_states(to, static_cast<const Value*>(source), place.d * strides.channel + place.state, place.count);
}

/// u·B of one step, from memory; `B` has the values that it keeps when constant.
template <class Value>
__device__ void load_products(Value (&products)[kFusedStates], const Value (&B)[kFusedStates],
                              const ScanArgs& args, DType io, const Place& place, std::int64_t t) {
  with_io(io, [&]<class Io>(std::type_identity<Io>) {
    using Stored = StoredProjection<Io, Value>;
    const auto* variable = static_cast<const Stored*>(args.B) + place.block.b * args.b_strides.batch +
                           place.block.g * args.b_strides.group + t * args.b_strides.time;
    const std::int64_t at = place.row + place.channel * args.sequence.dim + t * args.sequence.time;
    const float u = place.count > 0 ? to_float(static_cast<const Io*>(args.u)[at]) : 0.0F;
#pragma unroll
    for (int s = 0; s < kFusedStates; ++s) {
      products[s] = Value{};
      if (s < place.count)
        products[s] =
            u * (args.variable_b ? to_float(variable[(place.state + s) * args.b_strides.state]) : B[s]);
    }
  });
}

/// Loads that a thread has under way together while it stages: what staging waits for is the latency of
/// memory. They are free of branches, which would put one after the other: what does not exist is read from
/// where something does, and not used.
inline constexpr int kInFlight = 4;

/// A tile of `rows` × `steps` elements that exist, at least one, out of 2^rows_log2 × 2^steps_log2.
struct TileShape {
  int rows_log2, steps_log2, rows, steps;
  std::int64_t row_stride, time_stride;

  __device__ int count() const { return 1 << (rows_log2 + steps_log2); }
  __device__ TileElement element(int i) const {
    return tile_element(i, rows_log2, steps_log2, time_stride == 1);
  }
  __device__ bool exists(const TileElement& e) const { return e.row < rows && e.step < steps; }
  __device__ std::int64_t offset(const TileElement& e) const {
    return min(e.row, rows - 1) * row_stride + min(e.step, steps - 1) * time_stride;
  }
};

/// A thread's next few elements of B or C on their way from memory to a [step][state] tile.
template <class Stored, class Value>
class ProjectionStage {
 public:
  /// Starts to load the first of them, unless `source` is constant.
  __device__ ProjectionStage(Value* tile, const void* source, bool variable, const ProjectionStrides& strides,
                             const Place& place, std::int64_t start, int valid, std::int64_t dstate,
                             const FusedPlan& plan)
      : tile_(tile),
        source_(static_cast<const Stored*>(source) + place.block.b * strides.batch +
                place.block.g * strides.group + start * strides.time),
        variable_(variable),
        shape_{plan.states_log2(), plan.steps_log2, static_cast<int>(dstate), valid,
               strides.state,      strides.time},
        threads_(plan.threads()),
        pitch_(plan.projection_pitch()) {
    if (variable_) load(threadIdx.x);
  }
  /// Stores them, and all others.
  __device__ void finish() {
    if (!variable_) return;
    for (int first = threadIdx.x; first < shape_.count(); first += kInFlight * threads_) {
      if (first >= kInFlight * threads_) load(first);
#pragma unroll
      for (int k = 0; k < kInFlight; ++k) {
        const int i = first + k * threads_;
        const TileElement e = shape_.element(i);
        if (i < shape_.count())
          tile_[e.step * pitch_ + e.row] = shape_.exists(e) ? to_float(raw_[k]) : Value{};
      }
    }
  }

 private:
  __device__ void load(int first) {
#pragma unroll
    for (int k = 0; k < kInFlight; ++k)
      raw_[k] = source_[shape_.offset(shape_.element(first + k * threads_))];
  }

  Value* tile_;
  const Stored* source_;
  bool variable_;
  TileShape shape_;
  int threads_, pitch_;
  Stored raw_[kInFlight];
};

__device__ inline TileShape sequence_shape(const ScanArgs& args, const Place& place, int valid,
                                           const FusedPlan& plan) {
  return {plan.channels_log2, plan.steps_log2,   place.block.count, valid,
          args.sequence.dim,  args.sequence.time};
}

/// For each of the thread's elements of `count` (B, D, L) tensors, loads them and calls store(where it is in
/// a sequence tile, whether it exists, values). The second of the sources is delta, and gets delta_bias
/// added. A null source has the values of the first.
template <class Io, int count, class Store>
__device__ void stage_sequences(const void* const (&sources)[count], const ScanArgs& args, const Place& place,
                                std::int64_t start, int valid, const FusedPlan& plan, const Store& store) {
  const TileShape shape = sequence_shape(args, place, valid, plan);
  const std::int64_t origin = place.row + start * args.sequence.time;
  for (int first = threadIdx.x; first < shape.count(); first += kInFlight * plan.threads()) {
    Io raw[kInFlight][count];
    float bias[kInFlight] = {};
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      const TileElement e = shape.element(first + k * plan.threads());
      const std::int64_t at = origin + shape.offset(e);
      if (args.delta_bias != nullptr)
        bias[k] = args.delta_bias[place.block.first + min(e.row, shape.rows - 1)];
#pragma unroll
      for (int i = 0; i < count; ++i)
        raw[k][i] = static_cast<const Io*>(sources[i] != nullptr ? sources[i] : sources[0])[at];
    }
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      const TileElement e = shape.element(first + k * plan.threads());
      if (first + k * plan.threads() >= shape.count()) continue;
      float loaded[count];
#pragma unroll
      for (int i = 0; i < count; ++i) loaded[i] = to_float(raw[k][i]);
      loaded[1] += bias[k];
      store(e.row * plan.sequence_pitch() + e.step, shape.exists(e), loaded);
    }
  }
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
      ProjectionStage<StoredProjection<Io, Value>, Value> stage_B(
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

template <class Io, class Value>
__device__ void stage_gradient_tile(const GradientTiles<Value>& tiles, const ScanGradientArgs& args,
                                    const Place& place, std::int64_t start, int valid,
                                    const FusedPlan& plan) {
  const ScanArgs& scan = args.scan;
  using Stage = ProjectionStage<StoredProjection<Io, Value>, Value>;
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
    const TileElement e = shape.element(i);
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

/// Sums over the channels of a warp of dB (sums 0 to 3) and dC (4 to 7) of a thread's states, to `to`. Lanes
/// in bits below those of the channel; 16 is the highest bit of either.
template <class Value>
__device__ void add_channels(Value (&sums)[2 * kFusedStates], Value* to, const FusedBackwardPlan& plan) {
  const int lanes = plan.tile.lanes_in_warp();
  const int thread = threadIdx.x;
  const int lane = thread & (lanes - 1);
  to += lane * kFusedStates;
  if (lanes == 32) {
#pragma unroll
    for (int which = 0; which < 2; ++which)
#pragma unroll
      for (int s = 0; s < kFusedStates; ++s) to[plan.sum_at(which, s)] = sums[which * kFusedStates + s];
    return;
  }
  exchange_halves<4>(sums, 16, thread & 16);
  to += (thread & 16) != 0 ? plan.sum_at(1, 0) : 0;
  if (lanes == 16) {
#pragma unroll
    for (int s = 0; s < kFusedStates; ++s) to[s] = sums[s];
    return;
  }
  exchange_halves<2>(sums, 8, thread & 8);
  to += (thread & 8) != 0 ? 2 : 0;
  if (lanes == 8) {
    to[0] = sums[0];
    to[1] = sums[1];
    return;
  }
  exchange_halves<1>(sums, 4, thread & 4);
  to += (thread & 4) != 0 ? 1 : 0;
  for (int distance = 2; distance >= lanes; distance /= 2) sums[0] = sums[0] + shuffle_xor(sums[0], distance);
  if ((thread & 3) == lane) *to = sums[0];
}

/// Sums over the lanes of a channel of du, ∂Δ and y, to `to` (one step of one channel of tiles.sums).
__device__ inline void add_lanes(float (&sums)[4], float* to, const FusedPlan& plan) {
  const int lanes = plan.lanes_in_warp();
  const int lane = plan.lane_of(threadIdx.x) & (lanes - 1);
  const int pitch = plan.parts() * plan.sequence_floats();
  to += plan.part_of(threadIdx.x) * plan.sequence_floats();
  if (lanes == 1) {
#pragma unroll
    for (int k = 0; k < kFusedBackwardSums; ++k) to[k * pitch] = sums[k];
    return;
  }
  const bool upper = (lane & (lanes / 2)) != 0;
  exchange_halves<2>(sums, lanes / 2, upper);
  if (lanes == 2) {
    to[upper ? 2 * pitch : 0] = sums[0];
    if (!upper) to[pitch] = sums[1];
    return;
  }
  const bool odd = (lane & (lanes / 4)) != 0;
  exchange_halves<1>(sums, lanes / 4, odd);
  for (int distance = lanes / 8; distance > 0; distance /= 2) sums[0] += shuffle_xor(sums[0], distance);
  const int which = (upper ? 2 : 0) + (odd ? 1 : 0);
  if ((lane & (lanes / 4 - 1)) == 0 && which < kFusedBackwardSums) to[which * pitch] = sums[0];
}

/// Sums of a thread's four states over the steps of a tile are added to its totals in shared memory, and
/// those are kept in the workspace from one segment to the one before.
template <class Value>
class Totals {
 public:
  __device__ Totals(Value* shared, const FusedBackwardPlan& plan)
      : own_(shared + threadIdx.x * kFusedStates), pitch_(plan.tile.threads() * kFusedStates) {}

  __device__ void add(int index, const Value (&sums)[kFusedStates]) const {
    Value total[kFusedStates];
    load_states(total, own_ + index * pitch_);
#pragma unroll
    for (int s = 0; s < kFusedStates; ++s) total[s] = total[s] + sums[s];
    store_states(own_ + index * pitch_, total);
  }
  /// From (B, D, N) in the workspace, or zeros where that is null.
  __device__ void load(int index, const float* from, std::int64_t at, int count) const {
    Value total[kFusedStates];
    load_states(total, values<Value>(from), at, count);
    store_states(own_ + index * pitch_, total);
  }
  __device__ void save(int index, float* to, std::int64_t at, int count) const {
#pragma unroll
    for (int s = 0; s < kFusedStates; ++s)
      if (s < count) reinterpret_cast<Value*>(to)[at + s] = own_[index * pitch_ + s];
  }

 private:
  Value* own_;
  int pitch_;
};

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
      stage_gradient_tile<Io>(tiles, args, place, start, valid, plan);
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
      const StepDerivative<family> step(method, tiles.delta[row + t]);
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
      Value projection_sums[2 * kFusedStates];  // dB, dC
#pragma unroll
      for (int s = 0; s < kFusedStates; ++s) {
        const auto [decay, input, previous] = step(A[s]);
        const Value g = (kOutputFactor<Value> * dy) * conjugate(C[s]) + carry[s];
        const Value of_decay = g * conjugate(h_before[s]);
        const Value of_input = u * (g * conjugate(B[s]));
        Value of_product = conjugate(input.value) * g;
        dA[s] = dA[s] + of_decay * conjugate(decay.by_A);
        if constexpr (input_depends_on_A(family)) dA[s] = dA[s] + of_input * conjugate(input.by_A);
        sums[1] += real_part(of_decay * conjugate(decay.by_delta));
        sums[1] += real_part(conjugate(input.by_delta) * of_input);
        if constexpr (two_samples(family)) {
          const Value of_previous = g * conjugate(before[s]);
          dA[s] = dA[s] + of_previous * conjugate(previous.by_A);
          sums[1] += real_part(of_previous * conjugate(previous.by_delta));
          of_product = of_product + previous_carry[s];
          previous_carry[s] = conjugate(previous.value) * g;
        }
        carry[s] = conjugate(decay.value) * g;
        sums[0] += real_part(of_product * conjugate(B[s]));
        sums[2] += real_product(C[s], h[s]);
        projection_sums[s] = u * of_product;
        projection_sums[kFusedStates + s] = (kOutputFactor<Value> * dy) * conjugate(h[s]);
        h[s] = h_before[s];
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
    const std::int64_t share_at = (blockIdx.x * backward.segment + tile * plan.steps()) * plan.states();
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
