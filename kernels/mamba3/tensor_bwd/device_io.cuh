#pragma once

// Io of prepare.h on the GPU.

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/common/io_types.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/mamba3/tensor_bwd/prepare.h"
#include "kernels/ssd_chunk_scan/tile.cuh"

namespace ssmbench::mamba3_bwd {

/// Of two halves, which take turns.
__device__ inline Octet octet_of(float4 first, float4 second) {
  return {{first.x, second.x, first.y, second.y, first.z, second.z, first.w, second.w}};
}

/// Element: bf16 or f32.
template <class Element>
struct DeviceIo {
  static constexpr bool kIsF32 = std::is_same_v<Element, float>;
  using Word = std::conditional_t<kIsF32, float2, std::uint32_t>;

  static __device__ const void* element(const void* data, std::int64_t at) {
    return static_cast<const Element*>(data) + at;
  }
  static __device__ void* element(void* data, std::int64_t at) { return static_cast<Element*>(data) + at; }
  static __device__ float load(const void* data, std::int64_t at) {
    return to_float(__ldg(static_cast<const Element*>(data) + at));
  }
  static __device__ void store(void* data, std::int64_t at, float value) {
    static_cast<Element*>(data)[at] = from_float<Element>(value);
  }
  /// Two elements, and their values.
  static __device__ Word load_word(const void* data, std::int64_t at) {
    return __ldg(reinterpret_cast<const Word*>(static_cast<const Element*>(data) + at));
  }
  static __device__ Pair unpack_word(Word word) {
    if constexpr (kIsF32) {
      return {{word.x, word.y}};
    } else {
      const float2 pair = unpack_pair<Element>(word);
      return {{pair.x, pair.y}};
    }
  }
  static __device__ void store_pair(void* data, std::int64_t at, const Pair& pair) {
    auto* const to = reinterpret_cast<Word*>(static_cast<Element*>(data) + at);
    if constexpr (kIsF32)
      *to = make_float2(pair.x[0], pair.x[1]);
    else
      *to = pack_pair<Element>(pair.x[0], pair.x[1]);
  }
  static __device__ Octet load_octet(const void* data, std::int64_t at) {
    const auto* const from = static_cast<const Element*>(data) + at;
    if constexpr (kIsF32) {
      return load_floats(from);
    } else {
      const uint4 bits = __ldg(reinterpret_cast<const uint4*>(from));
      const std::uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
      Octet octet;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 pair = unpack_pair<Element>(words[i]);
        octet.state[2 * i] = pair.x;
        octet.state[2 * i + 1] = pair.y;
      }
      return octet;
    }
  }
  static __device__ Octet load_floats(const float* data) {
    const float4 first = __ldg(reinterpret_cast<const float4*>(data));
    const float4 second = __ldg(reinterpret_cast<const float4*>(data) + 1);
    return {{first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w}};
  }
  static __device__ float4 load_four(const void* data, std::int64_t at) {
    const auto* const from = static_cast<const Element*>(data) + at;
    if constexpr (kIsF32) {
      return __ldg(reinterpret_cast<const float4*>(from));
    } else {
      const uint2 bits = __ldg(reinterpret_cast<const uint2*>(from));
      const float2 first = unpack_pair<Element>(bits.x);
      const float2 second = unpack_pair<Element>(bits.y);
      return make_float4(first.x, first.y, second.x, second.y);
    }
  }
  static __device__ Octet load_halves(const void* data, std::int64_t at, int apart) {
    return octet_of(load_four(data, at), load_four(data, at + apart));
  }
  static __device__ Octet load_float_halves(const float* data, int apart) {
    return octet_of(__ldg(reinterpret_cast<const float4*>(data)),
                    __ldg(reinterpret_cast<const float4*>(data + apart)));
  }
  static __device__ void store_halves(void* data, std::int64_t at, int apart, const Octet& octet) {
    const auto& x = octet.state;
    store_four(data, at, {x[0], x[2], x[4], x[6]});
    store_four(data, at + apart, {x[1], x[3], x[5], x[7]});
  }
  template <bool kIsFloat>
  static __device__ float load_rate(const void* data, std::int64_t at) {
    if constexpr (kIsFloat)
      return __ldg(static_cast<const float*>(data) + at);
    else
      return load(data, at);
  }
  template <bool kIsFloat>
  static __device__ void load_rates(float (&to)[4], const void* data, std::int64_t at) {
    if constexpr (kIsFloat) {
      load_words(to, static_cast<const float*>(data) + at);
    } else {
      const float4 four = load_four(data, at);
      memcpy(to, &four, sizeof four);
    }
  }
  template <bool kIsFloat>
  static __device__ void store_rate(void* data, std::int64_t at, float value) {
    if constexpr (kIsFloat)
      static_cast<float*>(data)[at] = value;
    else
      store(data, at, value);
  }
  static __device__ void store_four(void* data, std::int64_t at, const float (&values)[4]) {
    auto* const to = static_cast<Element*>(data) + at;
    if constexpr (kIsF32)
      *reinterpret_cast<float4*>(to) = make_float4(values[0], values[1], values[2], values[3]);
    else
      *reinterpret_cast<uint2*>(to) =
          make_uint2(pack_pair<Element>(values[0], values[1]), pack_pair<Element>(values[2], values[3]));
  }
  template <class T>
  static __device__ void load_shared(T (&to)[4], const T* data) {
    const uint4 bits = *reinterpret_cast<const uint4*>(data);
    memcpy(to, &bits, sizeof bits);
  }
  static __device__ void prefetch(const void* data) {
    asm volatile("prefetch.global.L2 [%0];\n" ::"l"(__cvta_generic_to_global(data)));
  }
  template <class T>
  static __device__ T fetch(const T* data) {
    return __ldg(data);
  }
  template <class T>
  static __device__ void load_words(T (&to)[4], const T* data) {
    const uint4 bits = __ldg(reinterpret_cast<const uint4*>(data));
    memcpy(to, &bits, sizeof bits);
  }
  template <class T>
  static __device__ void store_words(T* data, const T (&from)[4]) {
    uint4 bits;
    memcpy(&bits, from, sizeof bits);
    *reinterpret_cast<uint4*>(data) = bits;
  }
  static __device__ void store_octet(void* data, std::int64_t at, const Octet& octet) {
    auto* const to = static_cast<Element*>(data) + at;
    if constexpr (kIsF32)
      store_vectors(to, octet.state);
    else
      store_vector(to, octet.state);
  }
};

}  // namespace ssmbench::mamba3_bwd
