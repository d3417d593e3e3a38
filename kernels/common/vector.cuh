#pragma once

#include <cstdint>

#include "kernels/common/complex.h"
#include "kernels/common/io_types.cuh"

// Loads and stores of 16-byte vectors, the most that a thread moves by one instruction. Addresses are aligned
// to 16 bytes.

namespace ssmbench {

/// Four neighbouring floats.
__device__ inline void load_vector(float* to, const float* from) {
  const float4 vector = *reinterpret_cast<const float4*>(from);
  to[0] = vector.x;
  to[1] = vector.y;
  to[2] = vector.z;
  to[3] = vector.w;
}
__device__ inline void store_vector(float* to, float first, float second, float third, float fourth) {
  *reinterpret_cast<float4*>(to) = float4{first, second, third, fourth};
}
/// Two, aligned to 8 bytes.
__device__ inline void store_half_vector(float* to, float first, float second) {
  *reinterpret_cast<float2*>(to) = float2{first, second};
}

/// `count` neighbouring values, a multiple of 4 (Complex: of 2).
template <int count>
__device__ void load_vectors(float (&to)[count], const float* from) {
#pragma unroll
  for (int i = 0; i < count; i += 4) load_vector(to + i, from + i);
}
template <int count>
__device__ void load_vectors(Complex (&to)[count], const Complex* from) {
#pragma unroll
  for (int i = 0; i < count; i += 2) {
    const float4 vector = *reinterpret_cast<const float4*>(from + i);
    to[i] = Complex{vector.x, vector.y};
    to[i + 1] = Complex{vector.z, vector.w};
  }
}
template <int count>
__device__ void store_vectors(float* to, const float (&from)[count]) {
#pragma unroll
  for (int i = 0; i < count; i += 4) store_vector(to + i, from[i], from[i + 1], from[i + 2], from[i + 3]);
}
template <int count>
__device__ void store_vectors(Complex* to, const Complex (&from)[count]) {
#pragma unroll
  for (int i = 0; i < count; i += 2)
    *reinterpret_cast<float4*>(to + i) = {from[i].re, from[i].im, from[i + 1].re, from[i + 1].im};
}

/// Four neighbouring elements of a tensor: one access, of 16 bytes in f32 and 8 in 16 bits.
template <class T>
struct alignas(4 * sizeof(T)) Elements4 {
  T values[4];
};

/// Eight neighbouring elements of a tensor: one vector, or two in f32. As words and not as elements: the
/// compiler would take elements apart, and so wait for them, as soon as they are loaded and not where they
/// are used.
template <class Io>
struct Elements8 {
  static constexpr int kVectors = 8 * sizeof(Io) / sizeof(uint4);
  uint4 vectors[kVectors];
};

/// By one instruction a vector: the compiler would make four of it.
template <class Io>
__device__ void store_elements(Io* to, const Elements8<Io>& elements) {
#pragma unroll
  for (int i = 0; i < Elements8<Io>::kVectors; ++i) {
    const uint4& vector = elements.vectors[i];
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(
                     __cvta_generic_to_global(to + i * (16 / sizeof(Io)))),
                 "r"(vector.x), "r"(vector.y), "r"(vector.z), "r"(vector.w)
                 : "memory");
  }
}

template <class Io>
__device__ void unpack(const Elements8<Io>& elements, float (&to)[8]) {
#pragma unroll
  for (int i = 0; i < Elements8<Io>::kVectors; ++i) {
    const uint4& vector = elements.vectors[i];
    const unsigned words[4]{vector.x, vector.y, vector.z, vector.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if constexpr (Elements8<Io>::kVectors == 2) {
        to[4 * i + k] = __uint_as_float(words[k]);
      } else {
        const float2 two = unpack_pair<Io>(words[k]);
        to[2 * k] = two.x;
        to[2 * k + 1] = two.y;
      }
    }
  }
}

template <class Io>
__device__ Elements8<Io> pack(const float (&from)[8]) {
  Elements8<Io> elements;
#pragma unroll
  for (int i = 0; i < Elements8<Io>::kVectors; ++i) {
    unsigned words[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if constexpr (Elements8<Io>::kVectors == 2)
        words[k] = __float_as_uint(from[4 * i + k]);
      else
        words[k] = pack_pair<Io>(from[2 * k], from[2 * k + 1]);
    }
    elements.vectors[i] = uint4{words[0], words[1], words[2], words[3]};
  }
  return elements;
}

}  // namespace ssmbench
