#pragma once

#include <cstdint>

#include "kernels/common/io_types.cuh"

// Eight neighbouring elements of a tensor, moved by 16 bytes.

namespace ssmbench::rows {

template <class Io>
struct alignas(16) Octet {
  Io at[8];
};

/// Zeros where it does not exist. The address is a multiple of 16 bytes.
template <class Io>
__device__ Octet<Io> load_octet(const Io* from, bool exists) {
  constexpr int kPieces = sizeof(Octet<Io>) / sizeof(uint4);
  Octet<Io> octet;
#pragma unroll
  for (int i = 0; i < kPieces; ++i)
    reinterpret_cast<uint4*>(&octet)[i] = exists ? __ldg(reinterpret_cast<const uint4*>(from) + i) : uint4{};
  return octet;
}

/// An octet in f32. bf16 by one instruction an element: it is the upper half of an f32.
__device__ inline void convert(const Octet<float>& octet, float (&to)[8]) {
#pragma unroll
  for (int k = 0; k < 8; ++k) to[k] = octet.at[k];
}
__device__ inline void convert(const Octet<__half>& octet, float (&to)[8]) {
#pragma unroll
  for (int k = 0; k < 8; k += 2) {
    const float2 two = __half22float2(reinterpret_cast<const __half2*>(&octet)[k / 2]);
    to[k] = two.x;
    to[k + 1] = two.y;
  }
}
__device__ inline void convert(const Octet<__nv_bfloat16>& octet, float (&to)[8]) {
#pragma unroll
  for (int k = 0; k < 8; k += 2) {
    const unsigned two = reinterpret_cast<const unsigned*>(&octet)[k / 2];
    to[k] = __uint_as_float(two << 16);
    to[k + 1] = __uint_as_float(two & 0xFFFF0000U);
  }
}

template <class Io>
__device__ void store_octet(Io* to, const Octet<Io>& octet) {
  constexpr int kPieces = sizeof(Octet<Io>) / sizeof(uint4);
#pragma unroll
  for (int i = 0; i < kPieces; ++i)
    reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(&octet)[i];
}

}  // namespace ssmbench::rows
