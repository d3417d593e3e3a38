#pragma once

// The fast kernels of selective_scan_bwd: how tiles of sequences get to shared memory and back. The picture
// is in kernel.cuh.

#include "kernels/common/activations.h"
#include "kernels/common/io_types.cuh"
#include "kernels/common/mma.cuh"
#include "kernels/selective_scan/fused_bwd/coordinates.cuh"

namespace ssmbench::fused_bwd {

/// Elements of a warp's tile that a thread stages.
inline constexpr int kStaged = VectorMap::kElements;

/// Whether the (B, D, L) tensors can be read and written by 16-byte vectors, along time or along channels.
inline bool in_vectors(const ScanGradientArgs& args, DType io) {
  constexpr std::uintptr_t kVectorBytes = 16;
  const ScanArgs& scan = args.scan;
  const std::int64_t rows =
      scan.sequence.time == 1 ? scan.sequence.dim : scan.sequence.time | scan.channels_per_group;
  auto bits = static_cast<std::uintptr_t>((rows | scan.sequence.batch) * (io == DType::f32 ? 4 : 2));
  for (const void* tensor : {scan.u, scan.delta, scan.z, args.dout, static_cast<const void*>(args.du),
                             static_cast<const void*>(args.ddelta), static_cast<const void*>(args.dz)})
    bits |= reinterpret_cast<std::uintptr_t>(tensor);
  return bits % kVectorBytes == 0;
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

/// A warp's elements of one tensor of the next tile, each lane its own.
template <class Io>
struct StagedVectors {
  static constexpr int kVectorElements = 16 / static_cast<int>(sizeof(Io));  // elements
  static constexpr int kVectors = kStaged / kVectorElements;

  uint4 vectors[kVectors][32];

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
          reinterpret_cast<const Io*>(&vectors[k / kVectorElements][lane]) + k % kVectorElements);
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

/// A lane's elements of a warp's tile. Unless `vectorized`, they are loaded and stored one by one, and waited
/// for at once.
template <class Io, bool vectorized>
class SequenceTile {
 public:
  using Vectors = StagedVectors<Io>;

  /// The first `count` of the warp's channels exist.
  __device__ SequenceTile(const ScanGradientArgs& args, int count, int lane)
      : args_(args),
        count_(count),
        map_{lane, args.scan.sequence.time == 1, Vectors::kVectorElements},
        index_(row_index(map_.step(0), map_.channel(0))) {}
  /// Index in the (B, D, L) tensors of the lane's first element of the tile that begins at `start`; `row` is
  /// that of the warp's first channel.
  __device__ std::int64_t first_at(std::int64_t row, std::int64_t start) const {
    return row + map_.channel(0) * args_.scan.sequence.dim +
           (start + map_.step(0)) * args_.scan.sequence.time;
  }

  /// Starts to load the tile whose first element for the lane is `at`, and which has `valid` steps, to the
  /// lane's vectors; zeros for elements that do not exist.
  template <Staging staging>
  __device__ void fetch(Vectors* raw, std::int64_t at, int valid) const {
    fetch_tensor(raw[0], args_.scan.u, at, valid);
    fetch_tensor(raw[1], args_.scan.delta, at, valid);
    if constexpr (staging != Staging::input) {
      fetch_tensor(raw[2], args_.dout, at, valid);
      if (args_.scan.z != nullptr) fetch_tensor(raw[3], args_.scan.z, at, valid);
    }
  }

  /// Stages the tile of `raw`, `at_once` elements at a time: the fewer, the fewer registers. Zeros past the
  /// end, where a step then changes nothing.
  template <Staging staging, int at_once, class Staged>
  __device__ void stage(Staged* sequences, StepFactors* factors, const Vectors* raw, const float* bias,
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
      if (valid >= kTileSteps) return;
      with_indices([&](const auto& index) {
#pragma unroll
        for (int k = 0; k < kStaged; ++k)
          if (map_.step(k) >= valid) {
            sequences[index(k)].in.delta = 0.0F;
            factors[index(k)].slope = 0.0F;  // a carry that enters passes through these steps
          }
      });
    }
  }

  /// {du, ddelta, dz} of the tile, from shared memory to memory.
  __device__ void store(const StepRecord* sequences, std::int64_t at, int valid) const {
#pragma unroll
    for (int first = 0; first < kStaged; first += Vectors::kVectorElements) {
      StagedElements<Io, Vectors::kVectorElements> du, ddelta, dz;
      with_indices([&](const auto& index) {
#pragma unroll
        for (int k = 0; k < Vectors::kVectorElements; k += 2) {
          const StepGradients even = sequences[index(first + k)].out;
          const StepGradients odd = sequences[index(first + k + 1)].out;
          du.set_pair(k, even.du, odd.du);
          ddelta.set_pair(k, even.ddelta, odd.ddelta);
          dz.set_pair(k, even.dz, odd.dz);
        }
      });
      store_tensor(args_.du, du, at, first, valid);
      store_tensor(args_.ddelta, ddelta, at, first, valid);
      if (args_.dz != nullptr) store_tensor(args_.dz, dz, at, first, valid);
    }
  }

  /// The same of one round of several: added to those of the rounds before, from `sums` on, and stored there
  /// or, by the last round, as store() does. `sums`: [gradient][4 elements][producer thread][4].
  __device__ void add_round(const StepRecord* sequences, float* sums, const Round& round, std::int64_t at,
                            int valid) const {
    constexpr int kAtOnce = 4;
#pragma unroll 1
    for (int first = 0; first < kStaged; first += kAtOnce, sums += kAtOnce * kProducerThreads) {
      float gradients[kSummedGradients][kAtOnce];
      with_indices([&](const auto& index) {
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
          const StepGradients of_step = sequences[index(first + k)].out;
          gradients[0][k] = of_step.du;
          gradients[1][k] = of_step.ddelta;
          gradients[2][k] = of_step.dz;
        }
      });
#pragma unroll
      for (int i = 0; i < kSummedGradients; ++i) {
        float* const sum = sums + i * kStaged * kProducerThreads;
        void* const tensor = i == 0 ? args_.du : i == 1 ? args_.ddelta : args_.dz;
        if (i == 2 && tensor == nullptr) break;
        if (!round.first) {
          float before[kAtOnce];
          load_vector(before, sum);
#pragma unroll
          for (int k = 0; k < kAtOnce; ++k) gradients[i][k] += before[k];
        }
        if (round.last) {
          StagedElements<Io, kAtOnce> elements;
#pragma unroll
          for (int k = 0; k < kAtOnce; k += 2) elements.set_pair(k, gradients[i][k], gradients[i][k + 1]);
          store_tensor(tensor, elements, at, first, valid);
        } else {
          store_vectors(sum, gradients[i]);
        }
      }
    }
  }

 private:
  __device__ bool exists(int k, int valid) const {
    return map_.channel(k) < count_ && map_.step(k) < valid;
  }
  /// Distance of the k-th element from the first, along the axis that is contiguous.
  __device__ static constexpr int offset(int k) {
    return k / Vectors::kVectorElements * 2 * Vectors::kVectorElements + k % Vectors::kVectorElements;
  }
  /// call(index), index(k) being the index of the k-th element in shared memory. `call` is compiled for
  /// either axis: each index is then a constant away from the first.
  template <class Call>
  __device__ void with_indices(const Call& call) const {
    if (map_.along_time)
      call([this](int k) { return index_ + offset(k) * kRowPitch; });
    else
      call([this](int k) { return index_ + offset(k); });
  }

  /// `usual`: with softplus and z. Options are branches around whole loops, so that the dependency chains of
  /// all elements overlap.
  template <Staging staging, int count, bool usual, class Staged>
  __device__ void stage_some(Staged* sequences, StepFactors* factors, const Vectors* raw, const float* bias,
                             int valid, int first) const {
    constexpr bool kInput = staging == Staging::input;
    const ScanArgs& scan = args_.scan;
    const auto x = raw[1].template take<count>(map_.lane, first);
    float shifted[count];
    if (map_.along_time) {
#pragma unroll
      for (int k = 0; k < count; ++k) shifted[k] = x.get(k) + bias[map_.channel(0)];
    } else {
#pragma unroll
      for (int k = 0; k < count; ++k) shifted[k] = x.get(k) + bias[map_.channel(first + k)];
    }
    ValueSlope step[count], gate[count];
    if (usual || scan.delta_softplus) {
#pragma unroll
      for (int k = 0; k < count; ++k) step[k] = fast_softplus_slope(shifted[k]);
    } else {
#pragma unroll
      for (int k = 0; k < count; ++k) step[k] = {shifted[k], 1.0F};
    }
    if (!kInput && (usual || scan.z != nullptr)) {
      const auto z = raw[3].template take<count>(map_.lane, first);
#pragma unroll
      for (int k = 0; k < count; ++k) gate[k] = fast_silu_slope(z.get(k));
    } else {
#pragma unroll
      for (int k = 0; k < count; ++k) gate[k] = {1.0F, 0.0F};
    }
    const auto u = raw[0].template take<count>(map_.lane, first);
    StagedElements<Io, count> dout;
    if constexpr (!kInput) dout = raw[2].template take<count>(map_.lane, first);
    with_indices([&](const auto& index) {
#pragma unroll
      for (int k = 0; k < count; ++k) {
        const int at = index(first + k);
        const float input = u.get(k);
        float delta = step[k].value;
        if constexpr (staging != Staging::gradients)
          if (!exists(
                  vectorized ? (first + k) / Vectors::kVectorElements * Vectors::kVectorElements : first + k,
                  valid))
            delta = 0.0F;
        if constexpr (kInput) {
          sequences[at] = {delta, delta * input};
        } else {
          const float loss = dout.get(k);
          const StepInputs staged{{delta, delta * input}, loss * gate[k].value, input};
          if constexpr (staging == Staging::gradients)
            sequences[at].in = staged;
          else
            sequences[at] = staged;
          if constexpr (staging == Staging::gradients) factors[at] = {step[k].slope, loss * gate[k].slope};
        }
      }
    });
  }

  __device__ void fetch_tensor(Vectors& vectors, const void* tensor, std::int64_t at, int valid) const {
    const Io* const from = static_cast<const Io*>(tensor);
#pragma unroll
    for (int vector = 0; vector < Vectors::kVectors; ++vector) {
      const int first = vector * Vectors::kVectorElements;
      uint4* const to = &vectors.vectors[vector][map_.lane];
      if constexpr (vectorized) {
        const bool there = exists(first, valid);
        copy_async_16(shared_address(to), from + (there ? at + offset(first) : 0), there ? 16 : 0);
      } else {
        StagedElements<Io, Vectors::kVectorElements> loaded;
#pragma unroll
        for (int k = 0; k < Vectors::kVectorElements; ++k) {
          const bool there = exists(first + k, valid);
          const Io value = from[there ? at + offset(first + k) : 0];
          loaded.values[k] = there ? value : Io(0.0F);
        }
        *to = loaded.words[0];
      }
    }
  }
  template <int count>
  __device__ void store_tensor(void* tensor, const StagedElements<Io, count>& from, std::int64_t at,
                               int first, int valid) const {
    using Word = typename StagedElements<Io, count>::Word;
    Io* const to = static_cast<Io*>(tensor) + at;
    if constexpr (vectorized) {
      if (exists(first, valid)) *reinterpret_cast<Word*>(to + offset(first)) = from.words[0];
    } else {
#pragma unroll
      for (int k = 0; k < count; ++k)
        if (exists(first + k, valid)) to[offset(first + k)] = from.values[k];
    }
  }

  const ScanGradientArgs& args_;
  int count_;  ///< may be negative
  VectorMap map_;
  int index_;  ///< of its first element in shared memory
};

}  // namespace ssmbench::fused_bwd
