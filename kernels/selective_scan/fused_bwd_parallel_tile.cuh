#pragma once

// The common case of cuda-fused for selective_scan_bwd: where a thread is, how tiles get to and from shared
// memory, one step back in time, and the sums over lanes. The picture is in fused_bwd_parallel.cu.

#include "kernels/common/mma.cuh"
#include "kernels/selective_scan/fused_bwd_parallel_map.h"
#include "kernels/selective_scan/fused_bwd_stage.cuh"
#include "kernels/selective_scan/fused_bwd_sums.cuh"

namespace ssmbench::parallel_bwd {

using fused_bwd::load_states;
using fused_bwd::shuffle_xor;
using fused_bwd::store_states;
using fused_bwd::ValueSlope;

inline constexpr float kLog2e = 1.44269504F;
inline constexpr float kLn2 = 0.693147181F;
inline constexpr int kCombineThreads = 256;

/// B and C of a step: in each of the four orders that lanes have their states in. The pad spreads the stores
/// of neighbouring steps over the banks.
inline constexpr int kOrders = 4;
inline constexpr int kProjectionPitch = kOrders * kParallelStates + 4;

/// Elements of a tile of a warp's channels that a thread stages.
inline constexpr int kStaged = kWarpChannels * kParallelSteps / 32;

/// 2^x, error 2 ulp; below 2^-126 zero.
__device__ inline float exp2_fast(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
/// 1/x, error 1 ulp, |x| at most 2^126.
__device__ inline float reciprocal_fast(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// softplus and its slope, the logistic function. With e = e^-|x| and s = e/(2 + e) ≤ 1/3, log(1 + e) is
/// 2·artanh(s), whose series keeps the relative accuracy; what is left out is under 2e-8 of it.
__device__ inline ValueSlope softplus_slope(float x) {
  const float e = exp2_fast(-kLog2e * fabsf(x));
  const float s = e * reciprocal_fast(2.0F + e);
  const float square = s * s;
  float series = 2.0F / 13;
  series = fmaf(series, square, 2.0F / 11);
  series = fmaf(series, square, 2.0F / 9);
  series = fmaf(series, square, 2.0F / 7);
  series = fmaf(series, square, 2.0F / 5);
  series = fmaf(series, square, 2.0F / 3);
  series = fmaf(series, square, 2.0F);
  return {fmaf(series, s, fmaxf(x, 0.0F)), (x < 0.0F ? e : 1.0F) * reciprocal_fast(1.0F + e)};
}

/// silu: x·σ(x), σ(x)·(1 + x·σ(−x)).
__device__ inline ValueSlope silu_slope(float x) {
  const float e = exp2_fast(-kLog2e * fabsf(x));
  const float large = reciprocal_fast(1.0F + e);
  const float small = e * large;
  const float open = x < 0.0F ? small : large;
  const float closed = x < 0.0F ? large : small;
  return {x * open, open * fmaf(x, closed, 1.0F)};
}

/// Whether the (B, D, L) tensors can be read and written in aligned pieces of 16 bytes along time.
inline bool in_pieces(const ScanGradientArgs& args, DType io) {
  if (args.scan.sequence.time != 1) return false;
  constexpr std::uintptr_t kPiece = 16;
  const std::int64_t size = io == DType::f32 ? 4 : 2;
  auto bits = static_cast<std::uintptr_t>((args.scan.sequence.dim | args.scan.sequence.batch) * size);
  for (const void* tensor :
       {args.scan.u, args.scan.delta, args.scan.z, args.dout, static_cast<const void*>(args.du),
        static_cast<const void*>(args.ddelta), static_cast<const void*>(args.dz)})
    bits |= reinterpret_cast<std::uintptr_t>(tensor);
  return bits % kPiece == 0;
}

/// An element of a tile of a warp's channels.
struct Element {
  int step, channel;

  /// Where shared memory has it: of two steps, lanes of one access have them in different banks.
  __device__ int index() const { return step * kWarpChannels + (channel ^ (step & 1) * 4); }
};

/// Where a thread is.
struct ParallelPlace {
  ParallelLane lane;
  int warp;
  std::int64_t block_index;  ///< among those of a segment
  BlockChannels block;
  int warp_count;             ///< channels of the warp that exist; may be negative
  std::int64_t segment;       ///< the block's first
  std::int64_t begin, end;    ///< steps of the block's segments
  std::int64_t row_of_block;  ///< among plan.rows()
  std::int64_t warp_row;      ///< of the warp's first channel in the (B, D, L) tensors
  std::int64_t lane_at;       ///< its states among plan.state_floats()

  /// A block does `segments` neighbouring ones, the first blocks those from first_segment on.
  __device__ ParallelPlace(const ScanArgs& args, const FusedBackwardParallelPlan& plan,
                           std::int64_t first_segment, std::int64_t segments)
      : lane{static_cast<int>(threadIdx.x & 31)},
        warp(static_cast<int>(threadIdx.x >> 5)),
        block_index(blockIdx.x % plan.blocks()),
        block(block_channels(plan, block_index, args.groups, args.channels_per_group)),
        warp_count(block.count - warp * kWarpChannels),
        segment(first_segment + blockIdx.x / plan.blocks() * segments),
        begin(segment * plan.segment),
        end(min(begin + segments * plan.segment, args.seqlen)),
        row_of_block(block_index * kParallelChannels),
        warp_row(block.b * args.sequence.batch + (block.first + warp * kWarpChannels) * args.sequence.dim),
        lane_at(block_index * kBlockStates + threadIdx.x * kLaneStates) {}

  __device__ std::int64_t tiles() const { return ceil_div(end - begin, kParallelSteps); }
  /// Of the warp's first channel among plan.rows().
  __device__ std::int64_t row() const { return row_of_block + warp * kWarpChannels; }
  /// Where the lane's states of B or C are in a staged tile.
  __device__ int projection_at(int step) const {
    return step * kProjectionPitch + lane.order() * kParallelStates + lane.first_state();
  }
  __device__ bool exists(int r, int s, std::int64_t dstate) const {
    return lane.channel(r) < warp_count && lane.state(s) < dstate;
  }
  /// Steps of the tile that begins at `start`; at least one.
  __device__ int valid(std::int64_t start) const { return steps_within(start, kParallelSteps, end); }
  /// Of a tile of `valid` steps.
  __device__ bool exists(const Element& e, int valid) const {
    return e.channel < warp_count && e.step < valid;
  }
  /// In (D, N).
  __device__ std::int64_t state_at(int r, int s, std::int64_t dstate) const {
    return (block.first + warp * kWarpChannels + lane.channel(r)) * dstate + lane.state(s);
  }
};

/// A channel of the grid, by its place in the workspace.
struct StoredRow {
  std::int64_t index, d, b;
  bool exists;

  __device__ StoredRow(const FusedBackwardParallelPlan& plan, std::int64_t row) : index(row) {
    const BlockChannels block =
        block_channels(plan, row / kParallelChannels, plan.groups, plan.channels_per_group);
    const int channel = static_cast<int>(row % kParallelChannels);
    b = block.b;
    d = block.first + channel;
    exists = channel < block.count;
  }
};

/// A state of the grid, by its place in the workspace.
struct StoredState {
  std::int64_t index, row, in_channels, in_batches;
  bool exists;

  __device__ StoredState(const ScanArgs& args, const FusedBackwardParallelPlan& plan, std::int64_t i)
      : index(i) {
    const int of_block = static_cast<int>(i % kBlockStates);
    const int s = of_block % kLaneStates;
    const int thread = of_block / kLaneStates % kParallelThreads;
    const int r = of_block / (kLaneStates * kParallelThreads);
    const ParallelLane lane{thread & 31};
    const StoredRow at(
        plan, i / kBlockStates * kParallelChannels + (thread >> 5) * kWarpChannels + lane.channel(r));
    row = at.index;
    exists = at.exists && lane.state(s) < args.dstate;
    in_channels = at.d * args.dstate + lane.state(s);
    in_batches = at.b * args.dim * args.dstate + in_channels;
  }
};

/// delta_bias and D of the block's channels; zeros where there are none. A barrier has to follow.
__device__ inline void load_channels(float* bias, float* D, const ScanArgs& args,
                                     const ParallelPlace& place) {
  const int channel = static_cast<int>(threadIdx.x);
  if (channel >= kParallelChannels) return;
  const bool exists = channel < place.block.count;
  const std::int64_t d = place.block.first + channel;
  bias[channel] = exists && args.delta_bias != nullptr ? args.delta_bias[d] : 0.0F;
  D[channel] = exists && args.D != nullptr ? args.D[d] : 0.0F;
}

/// Of each channel of the warp one sum, which all lanes that share the channel have.
__device__ inline void store_row_sums(float* rows, const float (&sums)[kLaneChannels],
                                      const ParallelPlace& place) {
  if ((place.lane.lane & 2) != 0) return;
  rows[place.row() + place.lane.channel(0)] = sums[0];
}

/// A thread's part of B and C of a tile: four states of one step of one of them, on their way through
/// registers to shared memory.
class ProjectionStage {
 public:
  __device__ explicit ProjectionStage(const ScanArgs& args) {
    constexpr int kQuads = kParallelStates / kLaneStates;
    static_assert(kParallelThreads == 2 * kParallelSteps * kQuads);
    which_ = static_cast<int>(threadIdx.x) / (kParallelSteps * kQuads);
    const int i = static_cast<int>(threadIdx.x) % (kParallelSteps * kQuads);
    const bool by_time = (which_ == 0 ? args.b_strides : args.c_strides).time == 1;
    step_ = by_time ? i % kParallelSteps : i / kQuads;
    state_ = kLaneStates * (by_time ? i / kParallelSteps : i % kQuads);
  }
  /// Starts to load them. What does not exist is read from where something does, and not used, so that no
  /// branch puts one load after the other; the same below.
  template <class Io>
  __device__ void load(const ScanArgs& args, const ParallelPlace& place, std::int64_t start) {
    using Bits = std::conditional_t<sizeof(Io) == sizeof(unsigned), unsigned, unsigned short>;
    const ProjectionStrides& strides = which_ == 0 ? args.b_strides : args.c_strides;
    const int valid = place.valid(start);
    const int states = static_cast<int>(args.dstate);
    count_ = step_ < valid ? states - state_ : 0;
    const Bits* from = static_cast<const Bits*>(which_ == 0 ? args.B : args.C) +
                       place.block.b * strides.batch + place.block.g * strides.group +
                       (start + min(step_, valid - 1)) * strides.time;
#pragma unroll
    for (int k = 0; k < kLaneStates; ++k) raw_[k] = from[min(state_ + k, states - 1) * strides.state];
  }
  /// Stores them in each of the four orders; zeros for what does not exist.
  template <class Io>
  __device__ void finish(float (&to)[2][kParallelSteps * kProjectionPitch]) const {
    float values[kLaneStates];
#pragma unroll
    for (int k = 0; k < kLaneStates; ++k) values[k] = k < count_ ? from_bits<Io>(raw_[k]) : 0.0F;
#pragma unroll
    for (int order = 0; order < kOrders; ++order)
      *reinterpret_cast<float4*>(&to[which_][step_ * kProjectionPitch + order * kParallelStates + state_]) = {
          values[0 ^ order], values[1 ^ order], values[2 ^ order], values[3 ^ order]};
  }

 private:
  template <class Io>
  __device__ static float from_bits(unsigned bits) {
    if constexpr (sizeof(Io) == sizeof(unsigned)) return __uint_as_float(bits);
    const auto half = static_cast<unsigned short>(bits);
    return to_float(reinterpret_cast<const Io&>(half));
  }

  unsigned raw_[kLaneStates];
  int which_, step_, state_, count_;
};

/// The k-th of the elements that a thread stages: pieces of 16 bytes, or one by one along whichever axis is
/// contiguous in memory.
template <class Io, bool pieces>
__device__ Element element_of(const SequenceStrides& strides, int k) {
  constexpr int kPiece = 16 / static_cast<int>(sizeof(Io));
  const int lane = static_cast<int>(threadIdx.x & 31);
  if constexpr (pieces) {
    const int piece = k / kPiece * 32 + lane;
    return {piece / kWarpChannels * kPiece + k % kPiece, piece % kWarpChannels};
  }
  const int i = k * 32 + lane;
  if (strides.time == 1) return {i % kParallelSteps, i / kParallelSteps};
  return {i / kWarpChannels, i % kWarpChannels};
}

/// 16 bytes from global memory to shared memory, where the thread that copied them finds them after
/// copies_done().
__device__ inline void copy_16(void* shared, const void* global) {
#if __CUDA_ARCH__ >= 800
  copy_async_16(shared_address(shared), global);
#else
  *static_cast<uint4*>(shared) = *static_cast<const uint4*>(global);
#endif
}
__device__ inline void copies_done() {
#if __CUDA_ARCH__ >= 800
  copy_async_commit();
  copy_async_wait<0>();
#endif
}

/// Pieces of u, delta, dout, z of the next tile: each thread its own.
using RawSlots = uint4[4 * kStaged * sizeof(float) / sizeof(uint4)][kParallelThreads];

/// A thread's elements of one tensor in a tile.
template <class Io, bool pieces>
struct StagedElements {
  static constexpr int kPiece = pieces ? 16 / static_cast<int>(sizeof(Io)) : 1;
  using Piece = std::conditional_t<pieces, uint4, Io>;

  union {
    Piece at[kStaged / kPiece];
    Io values[kStaged];
  };

  __device__ StagedElements() {}
  __device__ static constexpr int slot(int tensor_index, int k) {
    return (tensor_index * kStaged + k) / kPiece;
  }
  /// Starts to load them. All of a piece exists or nothing.
  __device__ void load(const void* tensor, const ScanArgs& args, const ParallelPlace& place,
                       std::int64_t start) {
    const Io* from = static_cast<const Io*>(tensor) + place.warp_row + start * args.sequence.time;
    const int last = place.valid(start) - kPiece;
#pragma unroll
    for (int k = 0; k < kStaged; k += kPiece) {
      const Element e = element_of<Io, pieces>(args.sequence, k);
      at[k / kPiece] =
          *reinterpret_cast<const Piece*>(from + min(e.channel, place.warp_count - 1) * args.sequence.dim +
                                          min(e.step, last) * args.sequence.time);
    }
  }
  /// Starts to copy what load() would read to slots of this thread.
  __device__ static void fetch(RawSlots& slots, int tensor_index, const void* tensor, const ScanArgs& args,
                               const ParallelPlace& place, std::int64_t start) {
    const Io* from = static_cast<const Io*>(tensor) + place.warp_row + start * args.sequence.time;
    const int last = place.valid(start) - kPiece;
#pragma unroll
    for (int k = 0; k < kStaged; k += kPiece) {
      const Element e = element_of<Io, pieces>(args.sequence, k);
      copy_16(&slots[slot(tensor_index, k)][threadIdx.x],
              from + min(e.channel, place.warp_count - 1) * args.sequence.dim + min(e.step, last));
    }
  }
  /// Takes it from there.
  __device__ void take(const RawSlots& slots, int tensor_index) {
#pragma unroll
    for (int k = 0; k < kStaged; k += kPiece) at[k / kPiece] = slots[slot(tensor_index, k)][threadIdx.x];
  }
  __device__ void store(void* tensor, const ScanArgs& args, const ParallelPlace& place,
                        std::int64_t start) const {
    Io* to = static_cast<Io*>(tensor) + place.warp_row + start * args.sequence.time;
    const int valid = place.valid(start);
#pragma unroll
    for (int k = 0; k < kStaged; k += kPiece) {
      const Element e = element_of<Io, pieces>(args.sequence, k);
      if (place.exists(e, valid))
        *reinterpret_cast<Piece*>(to + e.channel * args.sequence.dim + e.step * args.sequence.time) =
            at[k / kPiece];
    }
  }
};

/// What is staged of an element.
enum class Staging {
  input,      ///< {Δ, Δ·u}
  sequences,  ///< {Δ, Δ·u, dy, u}
  gradients,  ///< these, and {Δ's slope, dz/y}
};

/// Starts to bring the tile that begins at `start` to this thread's slots.
template <class Io, bool pieces, Staging staging>
__device__ void fetch_tile(RawSlots& raw, const ScanGradientArgs& args, const ParallelPlace& place,
                           std::int64_t start) {
  if constexpr (pieces) {
    using Elements = StagedElements<Io, pieces>;
    Elements::fetch(raw, 0, args.scan.u, args.scan, place, start);
    Elements::fetch(raw, 1, args.scan.delta, args.scan, place, start);
    if constexpr (staging != Staging::input) {
      Elements::fetch(raw, 2, args.dout, args.scan, place, start);
      if (args.scan.z != nullptr) Elements::fetch(raw, 3, args.scan.z, args.scan, place, start);
    }
  }
}

/// The warp's channels of the tile that begins at `start`, of which `raw` has the pieces. Zeros past the end,
/// where a step then changes nothing.
template <class Io, bool pieces, Staging staging>
__device__ void stage_tile(float4* sequences, float2* factors, const RawSlots& raw, const float* bias,
                           const ScanGradientArgs& args, const ParallelPlace& place, std::int64_t start) {
  constexpr bool kInput = staging == Staging::input;
  constexpr int kPiece = StagedElements<Io, pieces>::kPiece;
  const ScanArgs& scan = args.scan;
  const int valid = place.valid(start);
  StagedElements<Io, pieces> u, x, dout, z;
  if constexpr (pieces) {
    u.take(raw, 0);
    x.take(raw, 1);
    if constexpr (!kInput) {
      dout.take(raw, 2);
      z.take(raw, 3);
    }
  } else {
    u.load(scan.u, scan, place, start);
    x.load(scan.delta, scan, place, start);
    if constexpr (!kInput) {
      dout.load(args.dout, scan, place, start);
      z.load(scan.z != nullptr ? scan.z : scan.u, scan, place, start);
    }
  }
  // Options are branches around whole loops, so that the chains of all elements overlap.
  ValueSlope step[kStaged], gate[kStaged];
#pragma unroll
  for (int k = 0; k < kStaged; ++k) {
    const Element e = element_of<Io, pieces>(scan.sequence, k);
    step[k] = {to_float(x.values[k]) + bias[place.warp * kWarpChannels + e.channel], 1.0F};
    gate[k] = {1.0F, 0.0F};
  }
  if (scan.delta_softplus) {
#pragma unroll
    for (int k = 0; k < kStaged; ++k) step[k] = softplus_slope(step[k].value);
  }
  if constexpr (!kInput) {
    if (scan.z != nullptr) {
#pragma unroll
      for (int k = 0; k < kStaged; ++k) gate[k] = silu_slope(to_float(z.values[k]));
    }
  }
#pragma unroll
  for (int k = 0; k < kStaged; ++k) {
    const Element e = element_of<Io, pieces>(scan.sequence, k);
    const bool exists = place.exists(element_of<Io, pieces>(scan.sequence, k / kPiece * kPiece), valid);
    const float input = exists ? to_float(u.values[k]) : 0.0F;
    const float delta = exists ? step[k].value : 0.0F;
    if constexpr (kInput) {
      *reinterpret_cast<float2*>(&sequences[e.index()]) = {delta, delta * input};
    } else {
      const float loss = exists ? to_float(dout.values[k]) : 0.0F;
      sequences[e.index()] = {delta, delta * input, loss * gate[k].value, input};
      if constexpr (staging == Staging::gradients) factors[e.index()] = {step[k].slope, loss * gate[k].slope};
    }
  }
}

/// {du, ddelta, dz} of a tile of the warp's channels, to memory.
template <class Io, bool pieces>
__device__ void store_sequences(const float4* sequences, const ScanGradientArgs& args,
                                const ParallelPlace& place, std::int64_t start) {
  StagedElements<Io, pieces> du, ddelta, dz;
#pragma unroll
  for (int k = 0; k < kStaged; ++k) {
    const float4 gradients = sequences[element_of<Io, pieces>(args.scan.sequence, k).index()];
    du.values[k] = from_float<Io>(gradients.x);
    ddelta.values[k] = from_float<Io>(gradients.y);
    dz.values[k] = from_float<Io>(gradients.z);
  }
  du.store(args.du, args.scan, place, start);
  ddelta.store(args.ddelta, args.scan, place, start);
  if (args.dz != nullptr) dz.store(args.dz, args.scan, place, start);
}

/// Calls call.operator()<Io, pieces>().
template <class Call>
__device__ void with_staging(DType io, bool pieces, const Call& call) {
  fused_bwd::with_io(io, [&]<class Io>(std::type_identity<Io>) {
    if (pieces)
      call.template operator()<Io, true>();
    else
      call.template operator()<Io, false>();
  });
}

/// Sums of one step: over a thread's states, of each of its channels, and over its channels, of each state.
struct StepSums {
  float of_exponent[kLaneChannels] = {};  ///< Σ A·log2(e)·Ā·g·h_before
  float of_input[kLaneChannels] = {};     ///< Σ g·B
  float y[kLaneChannels] = {};            ///< Σ C·h
  float dB[kLaneStates] = {}, dC[kLaneStates] = {};
};

/// One state, one step back. `step` is {Δ, Δ·u, dy, u}; h before and after it.
__device__ inline void step_back(float& carry, float& dA, StepSums& sums, int r, int s, const float4& step,
                                 float decay, float A, float B, float C, float before, float after) {
  const float g = fmaf(step.z, C, carry);
  carry = decay * g;
  const float of_exponent = carry * before;
  dA = fmaf(step.x, of_exponent, dA);
  sums.of_exponent[r] = fmaf(A, of_exponent, sums.of_exponent[r]);
  sums.of_input[r] = fmaf(g, B, sums.of_input[r]);
  sums.y[r] = fmaf(C, after, sums.y[r]);
  sums.dB[s] = fmaf(g, step.y, sums.dB[s]);
  sums.dC[s] = fmaf(step.z, after, sums.dC[s]);
}

/// The sum of a value over this lane and the one at `distance`: of the odd step in lanes that have the bit of
/// `distance`, of the even step in the others.
__device__ inline float exchange_steps(float even, float odd, int distance, bool upper) {
  return (upper ? odd : even) + shuffle_xor(upper ? even : odd, distance);
}

/// Adds over the four lanes that share channels. even.…[0] is then of the lane's channel(0), and of the odd
/// step where lane bit 1 is set.
__device__ inline void add_over_states(StepSums& even, StepSums& odd, int lane) {
  const bool upper = (lane & 2) != 0;
  const auto add = [&](float(&a)[kLaneChannels], float(&b)[kLaneChannels]) {
    a[0] += shuffle_xor(a[1], 4);
    b[0] += shuffle_xor(b[1], 4);
    a[0] = exchange_steps(a[0], b[0], 2, upper);
  };
  add(even.of_exponent, odd.of_exponent);
  add(even.of_input, odd.of_input);
  add(even.y, odd.y);
}

/// Adds over the eight lanes that share states. even.…[0] is then of the lane's state(0), and of the odd step
/// where lane bit 0 is set.
__device__ inline void add_over_channels(StepSums& even, StepSums& odd, int lane) {
  const bool upper = (lane & 1) != 0;
  const auto add = [&](float(&a)[kLaneStates]) {
    a[0] += shuffle_xor(a[2], 16);
    a[1] += shuffle_xor(a[3], 16);
    a[0] += shuffle_xor(a[1], 8);
  };
  add(even.dB);
  add(even.dC);
  add(odd.dB);
  add(odd.dC);
  even.dB[0] = exchange_steps(even.dB[0], odd.dB[0], 1, upper);
  even.dC[0] = exchange_steps(even.dC[0], odd.dC[0], 1, upper);
}

}  // namespace ssmbench::parallel_bwd
