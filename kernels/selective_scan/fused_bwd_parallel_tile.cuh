#pragma once

// The common case of cuda-fused for selective_scan_bwd: where a thread is, how tiles get to and from shared
// memory, one step back in time, and the sums over lanes. The picture is in fused_bwd_parallel.cu.

#include "kernels/common/io_types.cuh"
#include "kernels/common/mma.cuh"
#include "kernels/common/scalar_math.h"
#include "kernels/selective_scan/fused_bwd_parallel_map.h"
#include "kernels/selective_scan/fused_bwd_stage.cuh"
#include "kernels/selective_scan/fused_bwd_sums.cuh"

namespace ssmbench::parallel_bwd {

using fused_bwd::load_states;
using fused_bwd::shuffle_xor;
using fused_bwd::store_states;
using fused_bwd::ValueSlope;

inline constexpr float kLn2 = 0.693147181F;
inline constexpr int kCombineThreads = 256;

/// B and C of a step: in each of the four orders that lanes have their states in. The pad spreads the stores
/// of neighbouring steps over the banks.
inline constexpr int kOrders = 4;
inline constexpr int kProjectionPitch = kOrders * kParallelStates + 4;

/// softplus and its slope, the logistic function. With e = e^-|x| and s = e/(2 + e) ≤ 1/3, log(1 + e) is
/// 2·artanh(s) = s·p(s²), which keeps the relative accuracy; p is the minimax polynomial, relative error
/// 8e-9.
__device__ inline ValueSlope softplus_slope(float x) {
  const float e = exp2_approximate(-kLog2E * fabsf(x));
  const float s = e * reciprocal_approximate(2.0F + e);
  const float square = s * s;
  float p = 0.281783351F;
  p = fmaf(p, square, 0.2796060271F);
  p = fmaf(p, square, 0.4002491029F);
  p = fmaf(p, square, 0.6666631468F);
  p = fmaf(p, square, 2.0F);
  return {fmaf(p, s, fmaxf(x, 0.0F)), (x < 0.0F ? e : 1.0F) * reciprocal_approximate(1.0F + e)};
}

/// silu: x·σ(x), σ(x)·(1 + x·σ(−x)). The limit keeps σ(−x) = e^-x·σ(x) finite.
__device__ inline ValueSlope silu_slope(float x) {
  const float e = exp2_approximate(fminf(-kLog2E * x, 125.0F));
  const float open = reciprocal_approximate(1.0F + e);
  return {x * open, open * fmaf(x, e * open, 1.0F)};
}

/// Elements of a tile of a warp's channels that a thread stages.
inline constexpr int kStaged = ParallelPiece::kElements;

/// Whether the (B, D, L) tensors can be read and written in aligned pieces of 16 bytes, along time or along
/// channels.
inline bool in_pieces(const ScanGradientArgs& args, DType io) {
  constexpr std::uintptr_t kPiece = 16;
  const ScanArgs& scan = args.scan;
  const std::int64_t rows =
      scan.sequence.time == 1 ? scan.sequence.dim : scan.sequence.time | scan.channels_per_group;
  auto bits = static_cast<std::uintptr_t>((rows | scan.sequence.batch) * (io == DType::f32 ? 4 : 2));
  for (const void* tensor : {scan.u, scan.delta, scan.z, args.dout, static_cast<const void*>(args.du),
                             static_cast<const void*>(args.ddelta), static_cast<const void*>(args.dz)})
    bits |= reinterpret_cast<std::uintptr_t>(tensor);
  return bits % kPiece == 0;
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
  __device__ bool exists(int r, int s, std::int64_t dstate) const {
    return lane.channel(r) < warp_count && lane.state(s) < dstate;
  }
  /// Steps of the tile that begins at `start`; at least one.
  __device__ int valid(std::int64_t start) const { return steps_within(start, kParallelSteps, end); }
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
template <class Io>
class ProjectionStage {
 public:
  static constexpr int kThreads = 2 * kParallelSteps * kParallelStates / kLaneStates;
  static_assert(kThreads == kParallelThreads);

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
    from_ = static_cast<const Bits*>(which_ == 0 ? args.B : args.C) + place.block.b * strides.batch +
            place.block.g * strides.group + (start + step_) * strides.time + state_ * strides.state;
    stride_ = strides.state;
    tile_stride_ = kParallelSteps * strides.time;
  }
  /// Goes on to the tile that is so many away.
  __device__ void move(int tiles) { from_ += tiles * tile_stride_; }
  /// Starts to load them. The tile has `valid` steps.
  __device__ void load(int valid) {
#pragma unroll
    for (int k = 0; k < kLaneStates; ++k)
      raw_[k] = step_ < valid && k < count_ ? static_cast<unsigned>(from_[k * stride_]) : 0U;
  }
  /// Stores them in each of the four orders; zeros for what does not exist.
  __device__ void finish(float (&to)[2][kParallelSteps * kProjectionPitch]) {
    if (!mine_) return;
    float values[kLaneStates];
#pragma unroll
    for (int k = 0; k < kLaneStates; ++k) values[k] = from_bits(raw_[k]);
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
  using Bits = std::conditional_t<sizeof(Io) == sizeof(unsigned), unsigned, unsigned short>;

  __device__ static float from_bits(unsigned bits) {
    if constexpr (sizeof(Io) == sizeof(unsigned)) return __uint_as_float(bits);
    const auto half = static_cast<unsigned short>(bits);
    return to_float(reinterpret_cast<const Io&>(half));
  }

  bool mine_;
  unsigned raw_[kLaneStates];
  int which_, step_, state_, count_;
  const Bits* from_;
  std::int64_t stride_, tile_stride_;
};

/// 16 or 4 bytes from global memory to shared memory, where the thread that copied them finds them after
/// copies_done(); zeros, and nothing is read, unless they exist.
template <class Bytes>
__device__ inline void copy_bytes(Bytes* shared, const void* global, bool exists) {
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
union StagedElements {
  static constexpr int kPieces = kStaged * static_cast<int>(sizeof(Io)) / 16;

  uint4 pieces[kPieces];
  Io values[kStaged];

  using Slots = uint4[kPieces][kParallelThreads];

  __device__ StagedElements() : pieces{} {}
  /// Those of this thread.
  __device__ void take(const Slots& slots) {
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) pieces[piece] = slots[piece][threadIdx.x];
  }
  __device__ float get(int k) const {
    if constexpr (std::is_same_v<Io, __nv_bfloat16>) {  // of to_float the compiler makes two instructions
      const uint4& all = pieces[0];
      const float2 pair = unpack_pair<Io>(k < 4 ? (k < 2 ? all.x : all.y) : (k < 6 ? all.z : all.w));
      return k % 2 == 0 ? pair.x : pair.y;
    }
    return to_float(values[k]);
  }
};

/// u, delta, dout, z of the next tile: each thread its own pieces.
template <class Io>
using RawSlots = typename StagedElements<Io>::Slots[4];

/// What is staged of an element.
enum class Staging {
  input,      ///< {Δ, Δ·u}
  sequences,  ///< {Δ, Δ·u, dy, u}
  gradients,  ///< these, and {Δ's slope, dz/y}
};

/// A thread's part of the warp's channels of a tile. Where `pieces` does not hold, elements are loaded and
/// stored one by one, and waited for at once.
template <class Io, bool pieces>
class SequenceStage {
 public:
  using Elements = StagedElements<Io>;

  /// Of tiles of `place`, from the one that begins at `start` on.
  __device__ SequenceStage(const ScanGradientArgs& args, const ParallelPlace& place, std::int64_t start)
      : args_(args),
        place_(place),
        piece_{place.lane.lane, args.scan.sequence.time == 1, kStaged / Elements::kPieces} {
    const SequenceStrides& strides = args.scan.sequence;
    at_ = place.warp_row + piece_.channel(0) * strides.dim + (start + piece_.step(0)) * strides.time;
    index_ = row_index(piece_.step(0), piece_.channel(0));
    bias_ = place.warp * kWarpChannels + piece_.channel(0);
  }
  /// Goes on to the tile that is so many away.
  __device__ void move(int tiles) { at_ += away(tiles); }

  /// Starts to bring the tile that is so many away, of `valid` steps, to this thread's slots; zeros for what
  /// does not exist.
  template <Staging staging>
  __device__ void fetch(RawSlots<Io>& raw, int tiles, int valid) const {
    fetch_tensor(raw[0], args_.scan.u, tiles, valid);
    fetch_tensor(raw[1], args_.scan.delta, tiles, valid);
    if constexpr (staging != Staging::input) {
      fetch_tensor(raw[2], args_.dout, tiles, valid);
      if (args_.scan.z != nullptr) fetch_tensor(raw[3], args_.scan.z, tiles, valid);
    }
  }

  /// Stages the tile, of which `raw` has the pieces. Zeros past the end, where a step then changes nothing.
  template <Staging staging>
  __device__ void stage(float4* sequences, float2* factors, const RawSlots<Io>& raw, const float* bias,
                        int valid) const {
    constexpr bool kInput = staging == Staging::input;
    const ScanArgs& scan = args_.scan;
    Elements u, x, dout, z;
    u.take(raw[0]);
    x.take(raw[1]);
    if constexpr (!kInput) {
      dout.take(raw[2]);
      if (scan.z != nullptr) z.take(raw[3]);
    }
    // Options are branches around whole loops, so that the chains of all elements overlap.
    float shifted[kStaged];
    if (piece_.along_time) {
#pragma unroll
      for (int k = 0; k < kStaged; ++k) shifted[k] = x.get(k) + bias[bias_];
    } else {
#pragma unroll
      for (int k = 0; k < kStaged; ++k) shifted[k] = x.get(k) + bias[bias_ + offset(k)];
    }
    ValueSlope step[kStaged], gate[kStaged];
    if (scan.delta_softplus) {
#pragma unroll
      for (int k = 0; k < kStaged; ++k) step[k] = softplus_slope(shifted[k]);
    } else {
#pragma unroll
      for (int k = 0; k < kStaged; ++k) step[k] = {shifted[k], 1.0F};
    }
    if (!kInput && scan.z != nullptr) {
#pragma unroll
      for (int k = 0; k < kStaged; ++k) gate[k] = silu_slope(z.get(k));
    } else {
#pragma unroll
      for (int k = 0; k < kStaged; ++k) gate[k] = {1.0F, 0.0F};
    }
#pragma unroll
    for (int k = 0; k < kStaged; ++k) {
      const float input = u.get(k);
      const float delta = exists(pieces ? k / kPiece * kPiece : k, valid) ? step[k].value : 0.0F;
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
    Elements du, ddelta, dz;
#pragma unroll
    for (int k = 0; k < kStaged; ++k) {
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
  static constexpr int kPiece = kStaged / Elements::kPieces;

  __device__ bool exists(int k, int valid) const {
    return piece_.channel(k) < place_.warp_count && piece_.step(k) < valid;
  }
  /// Of the k-th element from the first, along the axis that is contiguous.
  __device__ static constexpr int offset(int k) {
    return k / kPiece * 2 * kPiece + k % kPiece;
  }
  __device__ int index(int k) const {
    return index_ + offset(k) * (piece_.along_time ? kRowPitch : 1);
  }
  __device__ std::int64_t away(int tiles) const {
    return tiles * (kParallelSteps * args_.scan.sequence.time);
  }
  __device__ void fetch_tensor(typename Elements::Slots& slots, const void* tensor, int tiles,
                               int valid) const {
    const Io* const from = static_cast<const Io*>(tensor);
    const std::int64_t at = at_ + away(tiles);
    if constexpr (pieces) {
#pragma unroll
      for (int piece = 0; piece < Elements::kPieces; ++piece) {
        const bool there = exists(piece * kPiece, valid);
        copy_bytes(&slots[piece][threadIdx.x], from + (there ? at + offset(piece * kPiece) : 0), there);
      }
    } else {
      Elements loaded;
#pragma unroll
      for (int k = 0; k < kStaged; ++k) {
        const Io value = from[exists(k, valid) ? at + offset(k) : 0];
        loaded.values[k] = exists(k, valid) ? value : Io(0.0F);
      }
#pragma unroll
      for (int piece = 0; piece < Elements::kPieces; ++piece)
        slots[piece][threadIdx.x] = loaded.pieces[piece];
    }
  }
  __device__ void give(void* tensor, const Elements& from, int valid) const {
    Io* const to = static_cast<Io*>(tensor) + at_;
    if constexpr (pieces) {
#pragma unroll
      for (int piece = 0; piece < Elements::kPieces; ++piece)
        if (exists(piece * kPiece, valid))
          *reinterpret_cast<uint4*>(to + offset(piece * kPiece)) = from.pieces[piece];
    } else {
#pragma unroll
      for (int k = 0; k < kStaged; ++k)
        if (exists(k, valid)) to[offset(k)] = from.values[k];
    }
  }

  const ScanGradientArgs& args_;
  const ParallelPlace& place_;
  ParallelPiece piece_;
  std::int64_t at_;  ///< the first element in the tensors
  int index_, bias_;
};

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
