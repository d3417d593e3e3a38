#pragma once

// The common case of cuda-fused for selective_scan_bwd: how tiles of sequences get to shared memory and
// back. The picture is in fused_bwd_parallel.cu.

#include "kernels/common/fast_math.h"
#include "kernels/common/io_types.cuh"
#include "kernels/common/mma.cuh"
#include "kernels/common/scalar_math.h"
#include "kernels/selective_scan/fused_bwd/coordinates.cuh"

namespace ssmbench::parallel_bwd {

using fused_bwd::ValueSlope;

/// softplus and its slope, the logistic function.
__device__ inline ValueSlope softplus_slope(float x) {
  const float e = exp2_approximate(fabsf(x) * -kLog2E);
  return {rows::fast_softplus(x), (x < 0.0F ? e : 1.0F) * reciprocal_approximate(1.0F + e)};
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

/// Neighbouring elements of a thread, as they lie in memory.
template <class Io, int count>
union StagedElements {
  using Word = std::conditional_t<count * sizeof(Io) == 8, uint2, uint4>;
  static constexpr int kWords = count * static_cast<int>(sizeof(Io) / 2) / static_cast<int>(sizeof(Word) / 2);

  Word words[kWords];
  Io values[count];

  __device__ StagedElements() : words{} {}
  __device__ float get(int k) const {
    if constexpr (sizeof(Io) == 2) {
      const float2 pair = unpack_pair<Io>(reinterpret_cast<const unsigned*>(words)[k / 2]);
      return k % 2 == 0 ? pair.x : pair.y;
    } else {
      return values[k];
    }
  }
  /// Elements k, which is even, and k + 1.
  __device__ void set_pair(int k, float first, float second) {
    if constexpr (sizeof(Io) == 2) {
      reinterpret_cast<unsigned*>(words)[k / 2] = pack_pair<Io>(first, second);
    } else {
      values[k] = first;
      values[k + 1] = second;
    }
  }
};

/// A warp's elements of one tensor of the next tile, each lane its own: in pieces of 16 bytes.
template <class Io>
struct StagedSlots {
  static constexpr int kPiece = 16 / static_cast<int>(sizeof(Io));  // elements
  static constexpr int kPieces = kStaged / kPiece;

  uint4 pieces[kPieces][32];

  /// The elements of `lane` from `first` on.
  template <int count>
  __device__ StagedElements<Io, count> take(int lane, int first) const {
    using Elements = StagedElements<Io, count>;
    constexpr int kOfWord = count / Elements::kWords;
    Elements elements;
#pragma unroll
    for (int i = 0; i < Elements::kWords; ++i) {
      const int k = first + i * kOfWord;
      elements.words[i] = *reinterpret_cast<const typename Elements::Word*>(
          reinterpret_cast<const Io*>(&pieces[k / kPiece][lane]) + k % kPiece);
    }
    return elements;
  }
};

/// What is staged of an element.
enum class Staging {
  input,      ///< {Δ, Δ·u}
  sequences,  ///< {Δ, Δ·u, dy, u}
  gradients,  ///< these, and {Δ's slope, dz/y}
};

/// A lane's part of the warp's channels of a tile. Where `pieces` does not hold, elements are loaded and
/// stored one by one, and waited for at once.
template <class Io, bool pieces>
class SequenceStage {
 public:
  using Slots = StagedSlots<Io>;

  /// Of channels of which the first `count` exist.
  __device__ SequenceStage(const ScanGradientArgs& args, int count, int lane)
      : args_(args),
        count_(count),
        piece_{lane, args.scan.sequence.time == 1, Slots::kPiece},
        index_(row_index(piece_.step(0), piece_.channel(0))) {}
  /// The lane's first element in the (B, D, L) tensors, of the tile that begins at `start` in the row of the
  /// warp's first channel.
  __device__ std::int64_t first_at(std::int64_t row, std::int64_t start) const {
    return row + piece_.channel(0) * args_.scan.sequence.dim +
           (start + piece_.step(0)) * args_.scan.sequence.time;
  }

  /// Starts to bring the tile of which the lane's first element is `at`, and which has `valid` steps, to the
  /// lane's slots; zeros for what does not exist.
  template <Staging staging>
  __device__ void fetch(Slots* raw, std::int64_t at, int valid) const {
    fetch_tensor(raw[0], args_.scan.u, at, valid);
    fetch_tensor(raw[1], args_.scan.delta, at, valid);
    if constexpr (staging != Staging::input) {
      fetch_tensor(raw[2], args_.dout, at, valid);
      if (args_.scan.z != nullptr) fetch_tensor(raw[3], args_.scan.z, at, valid);
    }
  }

  /// Stages the tile, of which `raw` has the pieces, so many elements at once: the fewer, the fewer
  /// registers. Zeros past the end, where a step then changes nothing.
  template <Staging staging, int at_once, class Staged>
  __device__ void stage(Staged* sequences, float2* factors, const Slots* raw, const float* bias,
                        int valid) const {
    const auto stage_all = [&](auto usual) {
#pragma unroll
      for (int first = 0; first < kStaged; first += at_once)
        stage_some<staging, at_once, usual>(sequences, factors, raw, bias, valid, first);
    };
    if (staging == Staging::gradients && args_.scan.delta_softplus && args_.scan.z != nullptr)
      stage_all(std::true_type());
    else
      stage_all(std::false_type());
    if constexpr (staging == Staging::gradients) {
      if (valid >= kParallelSteps) return;
      with_places([&](const auto& place) {
#pragma unroll
        for (int k = 0; k < kStaged; ++k)
          if (piece_.step(k) >= valid) sequences[place(k)].x = 0.0F;
      });
    }
  }

  /// {du, ddelta, dz} of the tile, from where the sequences were staged to memory.
  __device__ void store(const float4* sequences, std::int64_t at, int valid) const {
#pragma unroll
    for (int first = 0; first < kStaged; first += Slots::kPiece) {
      StagedElements<Io, Slots::kPiece> du, ddelta, dz;
      with_places([&](const auto& place) {
#pragma unroll
        for (int k = 0; k < Slots::kPiece; k += 2) {
          const float4 even = sequences[place(first + k)];
          const float4 odd = sequences[place(first + k + 1)];
          du.set_pair(k, even.x, odd.x);
          ddelta.set_pair(k, even.y, odd.y);
          dz.set_pair(k, even.z, odd.z);
        }
      });
      give(args_.du, du, at, first, valid);
      give(args_.ddelta, ddelta, at, first, valid);
      if (args_.dz != nullptr) give(args_.dz, dz, at, first, valid);
    }
  }

 private:
  __device__ bool exists(int k, int valid) const {
    return piece_.channel(k) < count_ && piece_.step(k) < valid;
  }
  /// Of the k-th element from the first, along the axis that is contiguous.
  __device__ static constexpr int offset(int k) {
    return k / Slots::kPiece * 2 * Slots::kPiece + k % Slots::kPiece;
  }
  /// call(place), place(k) being where shared memory has the k-th element. What `call` does is compiled for
  /// either axis: each place is then a constant away from the first.
  template <class Call>
  __device__ void with_places(const Call& call) const {
    if (piece_.along_time)
      call([this](int k) { return index_ + offset(k) * kRowPitch; });
    else
      call([this](int k) { return index_ + offset(k); });
  }

  /// `usual`: with softplus and z. Options are branches around whole loops, so that the chains of all
  /// elements overlap.
  template <Staging staging, int count, bool usual, class Staged>
  __device__ void stage_some(Staged* sequences, float2* factors, const Slots* raw, const float* bias,
                             int valid, int first) const {
    constexpr bool kInput = staging == Staging::input;
    const ScanArgs& scan = args_.scan;
    const auto x = raw[1].template take<count>(piece_.lane, first);
    float shifted[count];
    if (piece_.along_time) {
#pragma unroll
      for (int k = 0; k < count; ++k) shifted[k] = x.get(k) + bias[piece_.channel(0)];
    } else {
#pragma unroll
      for (int k = 0; k < count; ++k) shifted[k] = x.get(k) + bias[piece_.channel(first + k)];
    }
    ValueSlope step[count], gate[count];
    if (usual || scan.delta_softplus) {
#pragma unroll
      for (int k = 0; k < count; ++k) step[k] = softplus_slope(shifted[k]);
    } else {
#pragma unroll
      for (int k = 0; k < count; ++k) step[k] = {shifted[k], 1.0F};
    }
    if (!kInput && (usual || scan.z != nullptr)) {
      const auto z = raw[3].template take<count>(piece_.lane, first);
#pragma unroll
      for (int k = 0; k < count; ++k) gate[k] = silu_slope(z.get(k));
    } else {
#pragma unroll
      for (int k = 0; k < count; ++k) gate[k] = {1.0F, 0.0F};
    }
    const auto u = raw[0].template take<count>(piece_.lane, first);
    StagedElements<Io, count> dout;
    if constexpr (!kInput) dout = raw[2].template take<count>(piece_.lane, first);
    with_places([&](const auto& place) {
#pragma unroll
      for (int k = 0; k < count; ++k) {
        const int at = place(first + k);
        const float input = u.get(k);
        float delta = step[k].value;
        if constexpr (staging != Staging::gradients)
          if (!exists(pieces ? (first + k) / Slots::kPiece * Slots::kPiece : first + k, valid)) delta = 0.0F;
        if constexpr (kInput) {
          sequences[at] = {delta, delta * input};
        } else {
          const float loss = dout.get(k);
          sequences[at] = {delta, delta * input, loss * gate[k].value, input};
          if constexpr (staging == Staging::gradients) factors[at] = {step[k].slope, loss * gate[k].slope};
        }
      }
    });
  }

  __device__ void fetch_tensor(Slots& slots, const void* tensor, std::int64_t at, int valid) const {
    const Io* const from = static_cast<const Io*>(tensor);
#pragma unroll
    for (int piece = 0; piece < Slots::kPieces; ++piece) {
      const int first = piece * Slots::kPiece;
      uint4* const to = &slots.pieces[piece][piece_.lane];
      if constexpr (pieces) {
        const bool there = exists(first, valid);
        copy_async_16(shared_address(to), from + (there ? at + offset(first) : 0), there ? 16 : 0);
      } else {
        StagedElements<Io, Slots::kPiece> loaded;
#pragma unroll
        for (int k = 0; k < Slots::kPiece; ++k) {
          const bool there = exists(first + k, valid);
          const Io value = from[there ? at + offset(first + k) : 0];
          loaded.values[k] = there ? value : Io(0.0F);
        }
        *to = loaded.words[0];
      }
    }
  }
  __device__ void give(void* tensor, const StagedElements<Io, Slots::kPiece>& from, std::int64_t at,
                       int first, int valid) const {
    Io* const to = static_cast<Io*>(tensor) + at;
    if constexpr (pieces) {
      if (exists(first, valid)) *reinterpret_cast<uint4*>(to + offset(first)) = from.words[0];
    } else {
#pragma unroll
      for (int k = 0; k < Slots::kPiece; ++k)
        if (exists(first + k, valid)) to[offset(first + k)] = from.values[k];
    }
  }

  const ScanGradientArgs& args_;
  int count_;  ///< may be negative
  ParallelPiece piece_;
  int index_;  ///< of its first element in shared memory
};

}  // namespace ssmbench::parallel_bwd
