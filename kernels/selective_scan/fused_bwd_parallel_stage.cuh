#pragma once

// The common case of cuda-fused for selective_scan_bwd: how tiles get to shared memory and back. The picture
// is in fused_bwd_parallel.cu.

#include "kernels/common/io_types.cuh"
#include "kernels/common/mma.cuh"
#include "kernels/common/scalar_math.h"
#include "kernels/selective_scan/fused_bwd_parallel_place.cuh"

namespace ssmbench::parallel_bwd {

using fused_bwd::ValueSlope;

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

/// A thread's part of B and C of a tile: four states of one step of one of them, on their way through
/// registers to shared memory.
template <class Io>
class ProjectionStage {
 public:
  static constexpr int kThreads = 2 * kParallelSteps * kParallelStates / kLaneStates;
  static_assert(kThreads == kStagingThreads);

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
  __device__ void finish(float (*to)[kParallelSteps * kProjectionPitch]) {
    if (!mine_) return;
    float values[kLaneStates];
#pragma unroll
    for (int k = 0; k < kLaneStates; ++k) values[k] = from_bits(raw_[k]);
#pragma unroll
    for (int order = 0; order < kOrders; ++order)
      *reinterpret_cast<float4*>(&to[which_][step_ * kProjectionPitch + order * kParallelStates + state_]) = {
          values[0 ^ order], values[1 ^ order], values[2 ^ order], values[3 ^ order]};
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

/// A thread's elements of one tensor in a tile.
template <class Io>
union StagedElements {
  static constexpr int kPieces = kStaged * static_cast<int>(sizeof(Io)) / 16;

  uint4 pieces[kPieces];
  Io values[kStaged];

  using Slots = uint4[kPieces][kStagingThreads];

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

/// A tensor's elements of the next tile: each thread its own pieces.
template <class Io>
using StagedSlots = typename StagedElements<Io>::Slots;

/// What is staged of an element.
enum class Staging {
  input,      ///< {Δ, Δ·u}
  sequences,  ///< {Δ, Δ·u, dy, u}
  gradients,  ///< these, and {Δ's slope, dz/y}
};

/// A thread's part of the warp's channels of a tile, or of those that are `later`. Where `pieces` does not
/// hold, elements are loaded and stored one by one, and waited for at once.
template <class Io, bool pieces>
class SequenceStage {
 public:
  using Elements = StagedElements<Io>;

  /// Of tiles of `place`, from the one that begins at `start` on.
  __device__ SequenceStage(const ScanGradientArgs& args, const ParallelPlace& place, std::int64_t start)
      : args_(args),
        count_(place.warp_count),
        piece_{place.lane.lane, args.scan.sequence.time == 1, kStaged / Elements::kPieces} {
    const SequenceStrides& strides = args.scan.sequence;
    at_ = place.warp_row + piece_.channel(0) * strides.dim + (start + piece_.step(0)) * strides.time;
    index_ = row_index(piece_.step(0), piece_.channel(0));
  }
  /// Goes on to the tile that is so many away.
  __device__ void move(int tiles) { at_ = at(0, tiles); }

  /// Starts to bring the tile that is so many away, of `valid` steps, to this thread's slots; zeros for what
  /// does not exist.
  template <Staging staging>
  __device__ void fetch(StagedSlots<Io>* raw, int later, int tiles, int valid) const {
    fetch_tensor(raw[0], args_.scan.u, later, tiles, valid);
    fetch_tensor(raw[1], args_.scan.delta, later, tiles, valid);
    if constexpr (staging != Staging::input) {
      fetch_tensor(raw[2], args_.dout, later, tiles, valid);
      if (args_.scan.z != nullptr) fetch_tensor(raw[3], args_.scan.z, later, tiles, valid);
    }
  }

  /// Stages the tile, of which `raw` has the pieces. Zeros past the end, where a step then changes nothing.
  template <Staging staging, class Staged>
  __device__ void stage(Staged* sequences, float2* factors, const StagedSlots<Io>* raw, const float* bias,
                        int later, int valid) const {
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
      for (int k = 0; k < kStaged; ++k) shifted[k] = x.get(k) + bias[piece_.channel(0)];
    } else {
#pragma unroll
      for (int k = 0; k < kStaged; ++k) shifted[k] = x.get(k) + bias[piece_.channel(k)];
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
    for_each([&](int k, int at) {
      const float input = u.get(k);
      float delta = step[k].value;
      // Where dy and what comes from after the end are zero, so is all that Δ goes into.
      if constexpr (staging != Staging::gradients)
        if (!exists(pieces ? k / kPiece * kPiece : k, later, valid)) delta = 0.0F;
      if constexpr (kInput) {
        sequences[at] = {delta, delta * input};
      } else {
        const float loss = dout.get(k);
        sequences[at] = {delta, delta * input, loss * gate[k].value, input};
        if constexpr (staging == Staging::gradients) factors[at] = {step[k].slope, loss * gate[k].slope};
      }
    });
  }

  /// {du, ddelta, dz} of the tile that is so many away, from where the sequences were staged to memory.
  __device__ void store(const float4* sequences, int later, int tiles, int valid) const {
    Elements du, ddelta, dz;
    for_each([&](int k, int at) {
      const float4 gradients = sequences[at];
      du.values[k] = from_float<Io>(gradients.x);
      ddelta.values[k] = from_float<Io>(gradients.y);
      dz.values[k] = from_float<Io>(gradients.z);
    });
    give(args_.du, du, later, tiles, valid);
    give(args_.ddelta, ddelta, later, tiles, valid);
    if (args_.dz != nullptr) give(args_.dz, dz, later, tiles, valid);
  }

 private:
  static constexpr int kPiece = kStaged / Elements::kPieces;

  __device__ bool exists(int k, int later, int valid) const {
    return piece_.channel(k) < count_ - later && piece_.step(k) < valid;
  }
  /// Of the k-th element from the first, along the axis that is contiguous.
  __device__ static constexpr int offset(int k) {
    return k / kPiece * 2 * kPiece + k % kPiece;
  }
  /// call(k, where shared memory has the k-th element). A loop of its own for either axis: each place is then
  /// a constant away from the first.
  template <class Call>
  __device__ void for_each(const Call& call) const {
    if (piece_.along_time) {
#pragma unroll
      for (int k = 0; k < kStaged; ++k) call(k, index_ + offset(k) * kRowPitch);
    } else {
#pragma unroll
      for (int k = 0; k < kStaged; ++k) call(k, index_ + offset(k));
    }
  }
  /// Of the first element, in the tensors.
  __device__ std::int64_t at(int later, int tiles) const {
    return at_ + later * args_.scan.sequence.dim + tiles * (kParallelSteps * args_.scan.sequence.time);
  }
  __device__ void fetch_tensor(typename Elements::Slots& slots, const void* tensor, int later, int tiles,
                               int valid) const {
    const Io* const from = static_cast<const Io*>(tensor);
    const std::int64_t first = at(later, tiles);
    if constexpr (pieces) {
#pragma unroll
      for (int piece = 0; piece < Elements::kPieces; ++piece) {
        const bool there = exists(piece * kPiece, later, valid);
        copy_async_16(shared_address(&slots[piece][threadIdx.x]),
                      from + (there ? first + offset(piece * kPiece) : 0), there ? 16 : 0);
      }
    } else {
      Elements loaded;
#pragma unroll
      for (int k = 0; k < kStaged; ++k) {
        const Io value = from[exists(k, later, valid) ? first + offset(k) : 0];
        loaded.values[k] = exists(k, later, valid) ? value : Io(0.0F);
      }
#pragma unroll
      for (int piece = 0; piece < Elements::kPieces; ++piece)
        slots[piece][threadIdx.x] = loaded.pieces[piece];
    }
  }
  __device__ void give(void* tensor, const Elements& from, int later, int tiles, int valid) const {
    Io* const to = static_cast<Io*>(tensor) + at(later, tiles);
    if constexpr (pieces) {
#pragma unroll
      for (int piece = 0; piece < Elements::kPieces; ++piece)
        if (exists(piece * kPiece, later, valid))
          *reinterpret_cast<uint4*>(to + offset(piece * kPiece)) = from.pieces[piece];
    } else {
#pragma unroll
      for (int k = 0; k < kStaged; ++k)
        if (exists(k, later, valid)) to[offset(k)] = from.values[k];
    }
  }

  const ScanGradientArgs& args_;
  int count_;  ///< channels from the warp's first on that exist; may be negative
  ParallelPiece piece_;
  std::int64_t at_;  ///< the first element in the tensors
  int index_;
};

}  // namespace ssmbench::parallel_bwd
