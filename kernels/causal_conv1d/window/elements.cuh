#pragma once

#include <cstdint>

#include "kernels/causal_conv1d/args.h"
#include "kernels/common/activations.h"
#include "kernels/common/io_types.cuh"

// Runs of neighbouring elements in registers, and the filter of the channels of a thread.

namespace ssmbench::window {

/// kCount neighbouring elements as they lie in memory: words, so that nothing waits for them before they are
/// used.
template <class Io, int kCount>
struct Packed {
  static constexpr int kWords = kCount * static_cast<int>(sizeof(Io)) / 4;
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

template <int kWords>
__device__ void store_words(void* to, const std::uint32_t (&from)[kWords]) {
  if constexpr (kWords == 2) {
    *static_cast<uint2*>(to) = uint2{from[0], from[1]};
  } else {
#pragma unroll
    for (int i = 0; i < kWords; i += 4)
      static_cast<uint4*>(to)[i / 4] = uint4{from[i], from[i + 1], from[i + 2], from[i + 3]};
  }
}

template <class Io>
__device__ std::uint32_t bits_of(Io element) {
  if constexpr (sizeof(Io) == 4)
    return __float_as_uint(element);
  else
    return *reinterpret_cast<const std::uint16_t*>(&element);
}

/// Elements from[0], from[stride], …, the first `valid` of them; zeros for the others. by_vectors: the stride
/// is 1, the address aligned, and `valid` is kCount, or at most 0.
template <class Io, int kCount>
__device__ Packed<Io, kCount> load_packed(bool by_vectors, const Io* from, std::int64_t stride, int valid) {
  Packed<Io, kCount> packed{};
  if (by_vectors) {
    if (valid > 0) load_words(packed.words, from);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const std::uint32_t bits = i < valid ? bits_of(from[i * stride]) : 0U;
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
      to[i + 1] = two.y;
    }
  }
}

template <class Io, int kCount>
__device__ void store_floats(bool by_vectors, Io* to, std::int64_t stride, int valid,
                             const float (&from)[kCount]) {
  if (by_vectors) {
    if (valid <= 0) return;
    Packed<Io, kCount> packed;
#pragma unroll
    for (int i = 0; i < Packed<Io, kCount>::kWords; ++i) {
      if constexpr (sizeof(Io) == 4)
        packed.words[i] = __float_as_uint(from[i]);
      else
        packed.words[i] = pack_pair<Io>(from[2 * i], from[2 * i + 1]);
    }
    store_words(to, packed.words);
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
