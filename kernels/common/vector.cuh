#pragma once

#include <cstdint>

#include "kernels/common/io_types.cuh"

// Eight neighbouring elements of a tensor, moved by 16 bytes.

namespace ssmbench::rows {

/// As words and not as elements: the compiler would take elements apart, and so wait for them, as soon as
/// they are loaded and not where they are used.
template <class Io>
struct Octet {
  static constexpr int kPieces = 8 * sizeof(Io) / sizeof(uint4);
  uint4 pieces[kPieces];
};

/// By one instruction: the compiler would make four of it.
template <class Io>
__device__ void store_octet(Io* to, const Octet<Io>& octet) {
#pragma unroll
  for (int i = 0; i < Octet<Io>::kPieces; ++i) {
    const uint4& piece = octet.pieces[i];
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(
                     __cvta_generic_to_global(to + i * (16 / sizeof(Io)))),
                 "r"(piece.x), "r"(piece.y), "r"(piece.z), "r"(piece.w)
                 : "memory");
  }
}

template <class Io>
__device__ void convert(const Octet<Io>& octet, float (&to)[8]) {
#pragma unroll
  for (int i = 0; i < Octet<Io>::kPieces; ++i) {
    const uint4& piece = octet.pieces[i];
    const unsigned words[4]{piece.x, piece.y, piece.z, piece.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if constexpr (Octet<Io>::kPieces == 2) {
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
__device__ Octet<Io> octet_of(const float (&from)[8]) {
  Octet<Io> octet;
#pragma unroll
  for (int i = 0; i < Octet<Io>::kPieces; ++i) {
    unsigned words[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if constexpr (Octet<Io>::kPieces == 2)
        words[k] = __float_as_uint(from[4 * i + k]);
      else
        words[k] = pack_pair<Io>(from[2 * k], from[2 * k + 1]);
    }
    octet.pieces[i] = uint4{words[0], words[1], words[2], words[3]};
  }
  return octet;
}

}  // namespace ssmbench::rows
