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

/// Steps of a warp's channels lie this far apart in shared memory: one place more than there are channels, so
/// that pieces along either axis spread over the banks.
inline constexpr int kRowPitch = kWarpChannels + 1;
static_assert(kWarpChannels * kParallelSteps == 32 * kPieceElements);

__device__ inline int row_index(int step, int channel) {
  return step * kRowPitch + channel;
}

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
/// 2·artanh(s) = s·p(s²), which keeps the relative accuracy; p is the minimax polynomial, error 4e-9.
__device__ inline ValueSlope softplus_slope(float x) {
  const float e = exp2_fast(-kLog2e * fabsf(x));
  const float s = e * reciprocal_fast(2.0F + e);
  const float square = s * s;
  float p = 0.281783351F;
  p = fmaf(p, square, 0.2796060271F);
  p = fmaf(p, square, 0.4002491029F);
  p = fmaf(p, square, 0.6666631468F);
  p = fmaf(p, square, 2.0F);
  return {fmaf(p, s, fmaxf(x, 0.0F)), (x < 0.0F ? e : 1.0F) * reciprocal_fast(1.0F + e)};
}

/// silu: x·σ(x), σ(x)·(1 + x·σ(−x)). The limit keeps σ(−x) = e^-x·σ(x) finite.
__device__ inline ValueSlope silu_slope(float x) {
  const float e = exp2_fast(fminf(-kLog2e * x, 125.0F));
  const float open = reciprocal_fast(1.0F + e);
  return {x * open, open * fmaf(x, e * open, 1.0F)};
}

/// Whether the (B, D, L) tensors can be read and written in aligned pieces of kPieceElements, along time or
/// along channels.
inline bool in_pieces(const ScanGradientArgs& args, DType io) {
  const ScanArgs& scan = args.scan;
  const bool along_time = scan.sequence.time == 1;
  const std::int64_t rows = along_time ? scan.sequence.dim : scan.sequence.time | scan.channels_per_group;
  const std::int64_t bytes = kPieceElements * (io == DType::f32 ? 4 : 2);
  if ((rows | scan.sequence.batch) % kPieceElements != 0) return false;
  std::uintptr_t addresses = 0;
  for (const void* tensor : {scan.u, scan.delta, scan.z, args.dout, static_cast<const void*>(args.du),
                             static_cast<const void*>(args.ddelta), static_cast<const void*>(args.dz)})
    addresses |= reinterpret_cast<std::uintptr_t>(tensor);
  return addresses % static_cast<std::uintptr_t>(bytes) == 0;
}

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
  __device__ bool exists(int s, std::int64_t dstate) const {
    return lane.channel() < warp_count && lane.state(s) < dstate;
  }
  /// Steps of the tile that begins at `start`; at least one.
  __device__ int valid(std::int64_t start) const { return steps_within(start, kParallelSteps, end); }
  /// In (D, N).
  __device__ std::int64_t state_at(int s, std::int64_t dstate) const {
    return (block.first + warp * kWarpChannels + lane.channel()) * dstate + lane.state(s);
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
    const int thread = of_block / kLaneStates;
    const ParallelLane lane{thread & 31};
    const StoredRow at(plan,
                       i / kBlockStates * kParallelChannels + (thread >> 5) * kWarpChannels + lane.channel());
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
__device__ inline void store_row_sum(float* rows, float sum, const ParallelPlace& place) {
  if (place.lane.step() == 0) rows[place.row() + place.lane.channel()] = sum;
}

/// A thread's part of B and C of a tile: four states of one step of one of them, on their way through
/// registers to shared memory. The first half of a block's warps does it.
class ProjectionStage {
 public:
  static constexpr int kThreads = 2 * kParallelSteps * kParallelStates / kLaneStates;
  static_assert(2 * kThreads == kParallelThreads);

  /// Of tiles of `place`, from the one that begins at `start` on; C too or B only.
  __device__ ProjectionStage(const ScanArgs& args, const ParallelPlace& place, std::int64_t start,
                             bool with_c)
      : mine_(threadIdx.x < (with_c ? kThreads : kThreads / 2)) {
    constexpr int kQuads = kParallelStates / kLaneStates;
    which_ = static_cast<int>(threadIdx.x) / (kParallelSteps * kQuads);
    const int i = static_cast<int>(threadIdx.x) % (kParallelSteps * kQuads);
    const ProjectionStrides& strides = which_ == 0 ? args.b_strides : args.c_strides;
    const bool by_time = strides.time == 1;
    step_ = by_time ? i % kParallelSteps : i / kQuads;
    state_ = kLaneStates * (by_time ? i / kParallelSteps : i % kQuads);
    count_ = mine_ ? static_cast<int>(args.dstate) - state_ : 0;
    source_ = which_ == 0 ? args.B : args.C;
    at_ = place.block.b * strides.batch + place.block.g * strides.group + (start + step_) * strides.time +
          state_ * strides.state;
    stride_ = strides.state;
    tile_stride_ = kParallelSteps * strides.time;
  }
  /// Goes on to the tile that is so many away.
  __device__ void move(int tiles) { at_ += tiles * tile_stride_; }
  /// Starts to load them. The tile has `valid` steps.
  template <class Io>
  __device__ void load(int valid) {
    using Bits = std::conditional_t<sizeof(Io) == sizeof(unsigned), unsigned, unsigned short>;
    const Bits* const from = static_cast<const Bits*>(source_) + at_;
#pragma unroll
    for (int k = 0; k < kLaneStates; ++k)
      raw_[k] = step_ < valid && k < count_ ? static_cast<unsigned>(from[k * stride_]) : 0U;
  }
  /// Stores them in each of the four orders; zeros for what does not exist.
  template <class Io>
  __device__ void finish(float (&to)[2][kParallelSteps * kProjectionPitch]) {
    if (!mine_) return;
    float values[kLaneStates];
#pragma unroll
    for (int k = 0; k < kLaneStates; ++k) values[k] = from_bits<Io>(raw_[k]);
#pragma unroll
    for (int order = 0; order < kOrders; ++order)
      *reinterpret_cast<float4*>(&to[which_][step_ * kProjectionPitch + order * kParallelStates + state_]) = {
          values[0 ^ order], values[1 ^ order], values[2 ^ order], values[3 ^ order]};
  }
  /// Forgets them: no registers are taken from here to the next load.
  __device__ void drop() {
#pragma unroll
    for (int k = 0; k < kLaneStates; ++k) raw_[k] = 0;
  }

 private:
  template <class Io>
  __device__ static float from_bits(unsigned bits) {
    if constexpr (sizeof(Io) == sizeof(unsigned)) return __uint_as_float(bits);
    const auto half = static_cast<unsigned short>(bits);
    return to_float(reinterpret_cast<const Io&>(half));
  }

  bool mine_;
  unsigned raw_[kLaneStates];
  int which_, step_, state_, count_;
  const void* source_;
  std::int64_t at_, stride_, tile_stride_;
};

/// 16, 8 or 4 bytes from global memory to shared memory, where the thread that copied them finds them after
/// copies_done(); zeros, and nothing is read, unless they exist.
template <class Bytes>
__device__ inline void copy_piece(Bytes* shared, const void* global, bool exists) {
#if __CUDA_ARCH__ >= 800
  constexpr int kBytes = static_cast<int>(sizeof(Bytes));
  if constexpr (kBytes == 16) {
    copy_async_16(shared_address(shared), global, exists ? kBytes : 0);
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;\n" ::"r"(shared_address(shared)),
                 "l"(__cvta_generic_to_global(global)), "n"(kBytes), "r"(exists ? kBytes : 0)
                 : "memory");
  }
#else
  *shared = exists ? *static_cast<const Bytes*>(global) : Bytes{};
#endif
}
__device__ inline void copies_done() {
#if __CUDA_ARCH__ >= 800
  copy_async_commit();
  copy_async_wait<0>();
#endif
}

/// A thread's elements of one tensor in a tile.
template <class Io>
union PieceValues {
  using Bytes = std::conditional_t<sizeof(Io) == 4, uint4, uint2>;

  Bytes bytes;
  Io values[kPieceElements];

  __device__ PieceValues() : bytes{} {}
  __device__ float get(int k) const {
    if constexpr (std::is_same_v<Io, __nv_bfloat16>) {  // one instruction each, for which compilers take two
      const unsigned pair = k < 2 ? bytes.x : bytes.y;
      return __uint_as_float(k % 2 == 0 ? pair << 16 : pair & 0xFFFF0000U);
    }
    return to_float(values[k]);
  }
};

/// u, delta, dout, z of the next tile: each thread its own piece.
template <class Io>
using RawSlots = typename PieceValues<Io>::Bytes[4][kParallelThreads];

/// What is staged of an element.
enum class Staging {
  input,      ///< {Δ, Δ·u}
  sequences,  ///< {Δ, Δ·u, dy, u}
  gradients,  ///< these, and {Δ's slope, dz/y}
};

/// A thread's part of the warp's channels of a tile. Where `pieces` does not hold, elements are loaded and
/// stored one by one, and loaded only when they are staged.
template <class Io, bool pieces>
class SequenceStage {
 public:
  using Values = PieceValues<Io>;

  /// Of tiles of `place`, from the one that begins at `start` on.
  __device__ SequenceStage(const ScanGradientArgs& args, const ParallelPlace& place, std::int64_t start)
      : args_(args), place_(place), piece_{args.scan.sequence.time == 1, place.lane.lane} {
    const SequenceStrides& strides = args.scan.sequence;
    at_ = place.warp_row + piece_.channel(0) * strides.dim + (start + piece_.step(0)) * strides.time;
    index_ = row_index(piece_.step(0), piece_.channel(0));
    bias_ = place.warp * kWarpChannels + piece_.channel(0);
  }
  /// Goes on to the tile that is so many away.
  __device__ void move(int tiles) { at_ += away(tiles); }

  /// Starts to bring the tile that is so many away, of `valid` steps, to this thread's slots.
  template <Staging staging>
  __device__ void fetch(RawSlots<Io>& raw, int tiles, int valid) const {
    if constexpr (pieces) {
      const bool there = exists(0, valid);
      const std::int64_t at = there ? at_ + away(tiles) : 0;
      const auto copy = [&](int tensor_index, const void* tensor) {
        copy_piece(&raw[tensor_index][threadIdx.x], static_cast<const Io*>(tensor) + at, there);
      };
      copy(0, args_.scan.u);
      copy(1, args_.scan.delta);
      if constexpr (staging != Staging::input) {
        copy(2, args_.dout);
        if (args_.scan.z != nullptr) copy(3, args_.scan.z);
      }
    }
  }

  /// Stages the tile, of which `raw` has the pieces. Zeros past the end, where a step then changes nothing.
  template <Staging staging>
  __device__ void stage(float4* sequences, float2* factors, const RawSlots<Io>& raw, const float* bias,
                        int valid) const {
    constexpr bool kInput = staging == Staging::input;
    const ScanArgs& scan = args_.scan;
    Values u, x, dout, z;
    take(u, raw, 0, scan.u, valid);
    take(x, raw, 1, scan.delta, valid);
    if constexpr (!kInput) {
      take(dout, raw, 2, args_.dout, valid);
      if (scan.z != nullptr) take(z, raw, 3, scan.z, valid);
    }
    // Options are branches around whole loops, so that the chains of all elements overlap.
    ValueSlope step[kPieceElements], gate[kPieceElements];
#pragma unroll
    for (int k = 0; k < kPieceElements; ++k) {
      step[k] = {x.get(k) + bias[bias_ + (piece_.along_time ? 0 : k)], 1.0F};
      gate[k] = {1.0F, 0.0F};
    }
    if (scan.delta_softplus) {
#pragma unroll
      for (int k = 0; k < kPieceElements; ++k) step[k] = softplus_slope(step[k].value);
    }
    if constexpr (!kInput) {
      if (scan.z != nullptr) {
#pragma unroll
        for (int k = 0; k < kPieceElements; ++k) gate[k] = silu_slope(z.get(k));
      }
    }
#pragma unroll
    for (int k = 0; k < kPieceElements; ++k) {
      const float input = u.get(k);
      const float delta = exists(pieces ? 0 : k, valid) ? step[k].value : 0.0F;
      float4* const to = &sequences[index(k)];
      if constexpr (kInput) {
        *reinterpret_cast<float2*>(to) = {delta, delta * input};
      } else {
        const float loss = dout.get(k);
        *to = {delta, delta * input, loss * gate[k].value, input};
        if constexpr (staging == Staging::gradients)
          factors[index(k)] = {step[k].slope, loss * gate[k].slope};
      }
    }
  }

  /// {du, ddelta, dz} of a tile, from where the sequences were staged to memory.
  __device__ void store(const float4* sequences, int valid) const {
    Values du, ddelta, dz;
#pragma unroll
    for (int k = 0; k < kPieceElements; ++k) {
      const float4 gradients = sequences[index(k)];
      du.values[k] = from_float<Io>(gradients.x);
      ddelta.values[k] = from_float<Io>(gradients.y);
      dz.values[k] = from_float<Io>(gradients.z);
    }
    give(args_.du, du, valid);
    give(args_.ddelta, ddelta, valid);
    if (args_.dz != nullptr) give(args_.dz, dz, valid);
  }

 private:
  __device__ bool exists(int k, int valid) const {
    return piece_.channel(k) < place_.warp_count && piece_.step(k) < valid;
  }
  __device__ int index(int k) const {
    return index_ + k * (piece_.along_time ? kRowPitch : 1);
  }
  __device__ std::int64_t away(int tiles) const {
    return tiles * (kParallelSteps * args_.scan.sequence.time);
  }
  __device__ void take(Values& values, const RawSlots<Io>& raw, int tensor_index, const void* tensor,
                       int valid) const {
    if constexpr (pieces) {
      values.bytes = raw[tensor_index][threadIdx.x];
    } else {
#pragma unroll
      for (int k = 0; k < kPieceElements; ++k) {
        const Io loaded = static_cast<const Io*>(tensor)[exists(k, valid) ? at_ + k : 0];
        values.values[k] = exists(k, valid) ? loaded : Io(0.0F);
      }
    }
  }
  __device__ void give(void* tensor, const Values& values, int valid) const {
    Io* const to = static_cast<Io*>(tensor) + at_;
    if constexpr (pieces) {
      if (exists(0, valid)) *reinterpret_cast<typename Values::Bytes*>(to) = values.bytes;
    } else {
#pragma unroll
      for (int k = 0; k < kPieceElements; ++k)
        if (exists(k, valid)) to[k] = values.values[k];
    }
  }

  const ScanGradientArgs& args_;
  const ParallelPlace& place_;
  ParallelPiece piece_;
  std::int64_t at_;  ///< the first element in the tensors
  int index_, bias_;
};

/// Sums of one step: over a thread's states, and over nothing yet but this channel, of each state.
struct StepSums {
  float of_exponent = 0.0F;  ///< Σ A·log2(e)·Ā·g·h_before
  float of_input = 0.0F;     ///< Σ g·B
  float y = 0.0F;            ///< Σ C·h
  float dB[kLaneStates], dC[kLaneStates];
};

/// One state, one step back. `step` is {Δ, Δ·u, dy, u}; h before and after it.
__device__ inline void step_back(float& carry, float& dA, StepSums& sums, int s, const float4& step,
                                 float decay, float A, float B, float C, float before, float after) {
  const float g = fmaf(step.z, C, carry);
  carry = decay * g;
  const float of_exponent = carry * before;
  dA = fmaf(step.x, of_exponent, dA);
  sums.of_exponent = fmaf(A, of_exponent, sums.of_exponent);
  sums.of_input = fmaf(g, B, sums.of_input);
  sums.y = fmaf(C, after, sums.y);
  sums.dB[s] = g * step.y;
  sums.dC[s] = step.z * after;
}

/// The sum over this lane and the one at `distance`: of `second` in lanes that have the bit of `distance`, of
/// `first` in the others.
__device__ inline float exchange(float first, float second, int distance, int lane) {
  const bool upper = (lane & distance) != 0;
  return (upper ? second : first) + shuffle_xor(upper ? first : second, distance);
}

/// Adds over the eight lanes that share states: dB of the lane's state(0) in even lanes, dC in odd ones.
__device__ inline float add_over_channels(StepSums& sums, int lane) {
  const auto add = [](float(&a)[kLaneStates]) {
    a[0] += shuffle_xor(a[2], 16);
    a[1] += shuffle_xor(a[3], 16);
    return a[0] + shuffle_xor(a[1], 8);
  };
  const float dB = add(sums.dB);
  return exchange(dB, add(sums.dC), 1, lane);
}

/// Adds over the four lanes of a channel, of four steps: of the lane's step().
__device__ inline float add_over_states(const float (&of_steps)[kGroupSteps], int lane) {
  return exchange(exchange(of_steps[0], of_steps[2], 4, lane), exchange(of_steps[1], of_steps[3], 4, lane), 2,
                  lane);
}

}  // namespace ssmbench::parallel_bwd
