#pragma once

#include <cstdint>

#include "kernels/causal_conv1d/args.h"
#include "kernels/common/activations.h"
#include "kernels/common/hardware.h"
#include "kernels/common/io_types.cuh"
#include "kernels/common/mma.cuh"

// Runs of neighbouring elements in registers, and the filter of the channels of a thread.

namespace ssmbench::window {

/// Elements of a 16-byte vector.
template <class Io>
inline constexpr int kVectorOf = 16 / static_cast<int>(sizeof(Io));

/// kCount neighbouring elements as they lie in memory: words, so that nothing waits for them before they are
/// used.
template <class Io, int kCount>
struct Packed {
  static constexpr int kWords = (kCount * static_cast<int>(sizeof(Io)) + 3) / 4;
  std::uint32_t words[kWords];
};

/// By 16-byte vectors, or the 8 bytes of four elements of 16 bits.
template <int kWords>
__device__ void load_words(std::uint32_t (&to)[kWords], const void* from) {
  if constexpr (kWords == 2) {
    const uint2 vector = *static_cast<const uint2*>(from);
    to[0] = vector.x;
    to[1] = vector.y;
  } else {
#pragma unroll
    for (int i = 0; i < kWords; i += 4) {
      const uint4 vector = static_cast<const uint4*>(from)[i / 4];
      to[i] = vector.x;
      to[i + 1] = vector.y;
      to[i + 2] = vector.z;
      to[i + 3] = vector.w;
    }
  }
}

/// By one instruction a vector: the compiler would make several of it.
template <int kWords>
__device__ void store_words(void* to, const std::uint32_t (&from)[kWords]) {
  const auto address = __cvta_generic_to_global(to);
  if constexpr (kWords == 2) {
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(address), "r"(from[0]), "r"(from[1]) : "memory");
  } else {
#pragma unroll
    for (int i = 0; i < kWords; i += 4)
      asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address + 4 * i), "r"(from[i]),
                   "r"(from[i + 1]), "r"(from[i + 2]), "r"(from[i + 3])
                   : "memory");
  }
}

/// The same from shared memory.
template <int kWords>
__device__ void load_shared(std::uint32_t (&to)[kWords], std::uint32_t shared) {
  if constexpr (kWords == 2) {
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "r"(shared));
  } else {
#pragma unroll
    for (int i = 0; i < kWords; i += 4)
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(to[i]), "=r"(to[i + 1]), "=r"(to[i + 2]), "=r"(to[i + 3])
                   : "r"(shared + i * 4));
  }
}

/// Starts to copy the first `valid` of a vector's kCount elements to shared memory, zeros for the others. The
/// vector is 8 or 16 bytes.
template <class Io, int kCount>
__device__ void copy_elements(std::uint32_t shared, const Io* from, int valid) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  auto* const to = static_cast<Io*>(__cvta_shared_to_generic(shared));
  for (int i = 0; i < kCount; ++i) to[i] = i < valid ? from[i] : from_float<Io>(0.0F);
#else
  if constexpr (kCount * sizeof(Io) == 8)
    copy_async_8(shared, from, valid * static_cast<int>(sizeof(Io)));
  else
    copy_async_16(shared, from, valid * static_cast<int>(sizeof(Io)));
#endif
}

template <class Io>
__device__ std::uint32_t bits_of(Io element) {
  if constexpr (sizeof(Io) == 4)
    return __float_as_uint(element);
  else
    return *reinterpret_cast<const std::uint16_t*>(&element);
}

/// Elements from[0], from[stride], …, those from `begin` to `valid`; zeros for the others. by_vectors: the
/// stride is 1, the address aligned, and `valid` is kCount, or at most 0.
template <class Io, int kCount>
__device__ Packed<Io, kCount> load_packed(bool by_vectors, const Io* from, std::int64_t stride, int valid,
                                          int begin = 0) {
  Packed<Io, kCount> packed{};
  if (kCount > 1 && by_vectors) {
    if constexpr (kCount > 1)
      if (valid > 0) load_words(packed.words, from);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const std::uint32_t bits = i >= begin && i < valid ? bits_of(from[i * stride]) : 0U;
      if constexpr (sizeof(Io) == 4)
        packed.words[i] = bits;
      else
        packed.words[i / 2] |= bits << (i % 2 * 16);
    }
  }
  return packed;
}

template <class Io, int kCount>
__device__ void unpack(const Packed<Io, kCount>& packed, float (&to)[kCount]) {
  if constexpr (sizeof(Io) == 4) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = __uint_as_float(packed.words[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; i += 2) {
      const float2 two = unpack_pair<Io>(packed.words[i / 2]);
      to[i] = two.x;
      if (i + 1 < kCount) to[i + 1] = two.y;
    }
  }
}

template <class Io, int kCount>
__device__ Packed<Io, kCount> pack(const float (&from)[kCount]) {
  Packed<Io, kCount> packed;
#pragma unroll
  for (int i = 0; i < Packed<Io, kCount>::kWords; ++i) {
    if constexpr (sizeof(Io) == 4)
      packed.words[i] = __float_as_uint(from[i]);
    else
      packed.words[i] = pack_pair<Io>(from[2 * i], from[2 * i + 1]);
  }
  return packed;
}

/// How many elements past the start of an aligned vector of kVector elements the address is.
template <class Io, int kVector>
__device__ int shift_of(const Io* address) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(address) % (kVector * sizeof(Io)) / sizeof(Io));
}

/// kCount of the kCount + kVector elements, from number `first` < kVector on.
template <class Io, int kCount, int kVector>
__device__ Packed<Io, kCount> shifted(Packed<Io, kCount + kVector> from, int first) {
  constexpr int kWords = Packed<Io, kCount>::kWords;
  constexpr int kAllWords = Packed<Io, kCount + kVector>::kWords;
  const int words = first * static_cast<int>(sizeof(Io)) / 4;
#pragma unroll
  for (int by = (kAllWords - kWords) / 2; by > 0; by /= 2) {
#pragma unroll
    for (int i = 0; i + by < kAllWords; ++i)
      from.words[i] = (words & by) != 0 ? from.words[i + by] : from.words[i];
  }
  Packed<Io, kCount> to;
#pragma unroll
  for (int i = 0; i < kWords; ++i)
    to.words[i] =
        sizeof(Io) == 4 ? from.words[i] : __funnelshift_r(from.words[i], from.words[i + 1], first % 2 * 16);
  return to;
}

/// Elements at any address, by the vectors that cover them; from `end` on nothing is read. The first `valid`
/// of them are needed.
template <class Io, int kCount>
__device__ Packed<Io, kCount> load_unaligned(const Io* from, int valid, const Io* end) {
  constexpr int kVector = kVectorOf<Io>;
  const int shift = shift_of<Io, kVector>(from);
  Packed<Io, kCount + kVector> cover{};
#pragma unroll
  for (int v = 0; v <= kCount / kVector; ++v) {
    const Io* const vector = from - shift + v * kVector;
    if (valid + shift <= v * kVector) continue;
    const auto packed = load_packed<Io, kVector>(
        vector + kVector <= end, vector, 1,
        vector < end ? static_cast<int>(min(end - vector, std::int64_t{kVector})) : 0);
#pragma unroll
    for (int i = 0; i < 4; ++i) cover.words[v * 4 + i] = packed.words[i];
  }
  return shifted<Io, kCount, kVector>(cover, shift);
}

/// Neighbouring lanes of a warp that store neighbouring elements, kCount each; the last of them may have
/// fewer. A lane that has none gives its elements to the next one only.
struct Neighbours {
  bool is_first;       ///< no lane before it gives elements
  bool next_is_whole;  ///< the next elements are one's that has kCount
};

/// Stores elements at any address, by the aligned vectors of memory: a lane's first one begins with the last
/// elements of the lane before. What no vector covers is stored by elements. All lanes must call it.
template <class Io, int kCount, int kVector>
__device__ void store_unaligned(const Neighbours& among, Io* to, const float (&from)[kCount], int valid) {
  constexpr int kVectorWords = Packed<Io, kVector>::kWords;
  constexpr int kWords = Packed<Io, kCount>::kWords;
  const int shift = shift_of<Io, kVector>(to);
  const auto own = pack<Io>(from);
  Packed<Io, kCount + kVector> both;
#pragma unroll
  for (int i = 0; i < kVectorWords; ++i)
    both.words[i] = __shfl_up_sync(kAllLanes, own.words[kWords - kVectorWords + i], 1);
#pragma unroll
  for (int i = 0; i < kWords; ++i) both.words[kVectorWords + i] = own.words[i];
  const auto aligned = shift == 0 ? own : shifted<Io, kCount, kVector>(both, kVector - shift);
  const bool has_vectors = valid == kCount;
  const bool has_first = has_vectors && (shift == 0 || !among.is_first);
#pragma unroll
  for (int v = 0; v < kCount / kVector; ++v) {
    Packed<Io, kVector> vector;
#pragma unroll
    for (int i = 0; i < kVectorWords; ++i) vector.words[i] = aligned.words[v * kVectorWords + i];
    if (v == 0 ? has_first : has_vectors) store_words(to - shift + v * kVector, vector.words);
  }
  const bool next_has_last = shift == 0 || among.next_is_whole;
  if (valid == 0 || (has_first && next_has_last)) return;
#pragma unroll
  for (int c = 0; c < kCount; ++c) {
    const bool is_in_first = c < kVector - shift;
    const bool is_stored = c >= kCount - shift ? next_has_last : is_in_first ? has_first : has_vectors;
    if (c < valid && !is_stored) to[c] = from_float<Io>(from[c]);
  }
}

template <class Io, int kCount>
__device__ void store_floats(bool by_vectors, Io* to, std::int64_t stride, int valid,
                             const float (&from)[kCount]) {
  if (kCount > 1 && by_vectors) {
    if constexpr (kCount > 1)
      if (valid > 0) store_words(to, pack<Io>(from).words);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (i < valid) to[i * stride] = from_float<Io>(from[i]);
  }
}

/// Weights and bias of kChannels neighbouring channels. A filter of fewer than kReach taps has its newest
/// tap last; the oldest ones are not used, but at most half of them: reach_of(). Time last, that saves
/// predicates; channels last the forward kernel took 4% longer by it in f32 (H100).
template <int kReach, int kChannels>
struct Filter {
  float weight[kReach][kChannels];
  float bias[kChannels];
  int unused;  ///< taps in front

  __device__ bool has(int tap) const { return (kChannels == 1 && tap >= kReach / 2) || tap >= unused; }
};

template <class Weight, int kReach, int kChannels>
__device__ void load_filter_as(Filter<kReach, kChannels>& filter, bool by_vectors, const ConvWeights& from,
                               std::int64_t channel, int width, int valid) {
  const auto* weight = static_cast<const Weight*>(from.weight) + channel * width;
  if (by_vectors && width == kReach) {
    if (valid <= 0) return;
    Packed<Weight, kReach * kChannels> packed;
    load_words(packed.words, weight);
    float flat[kReach * kChannels];
    unpack(packed, flat);
#pragma unroll
    for (int i = 0; i < kReach * kChannels; ++i) filter.weight[i % kReach][i / kReach] = flat[i];
  } else {
#pragma unroll
    for (int c = 0; c < kChannels; ++c)
#pragma unroll
      for (int j = 0; j < kReach; ++j)
        if (c < valid && filter.has(j)) filter.weight[j][c] = to_float(weight[c * width + j - filter.unused]);
  }
  const auto* bias = static_cast<const Weight*>(from.bias) + channel;
#pragma unroll
  for (int c = 0; c < kChannels; ++c)
    if (from.bias != nullptr && c < valid) filter.bias[c] = to_float(bias[c]);
}

/// The filters of the channels from `channel` on; only the first `valid` of them exist.
template <class Io, int kReach, int kChannels>
__device__ Filter<kReach, kChannels> load_filter(bool by_vectors, const ConvWeights& from,
                                                 std::int64_t channel, int width, int valid) {
  Filter<kReach, kChannels> filter{};
  filter.unused = kReach - width;
  if (from.are_f32)
    load_filter_as<float>(filter, by_vectors, from, channel, width, valid);
  else
    load_filter_as<Io>(filter, by_vectors, from, channel, width, valid);
  return filter;
}

/// How many of `count` things from `first` on are before `end`.
__device__ inline int valid_of(std::int64_t first, int count, std::int64_t end) {
  const std::int64_t left = end - first;
  return left < count ? static_cast<int>(left < 0 ? 0 : left) : count;
}

}  // namespace ssmbench::window
