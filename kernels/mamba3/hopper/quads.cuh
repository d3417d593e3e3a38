#pragma once

// Four pairs of a row of q or k: as they are stored, and in f32, where biases are added and pairs turned.

#include "kernels/common/vector.cuh"
#include "kernels/mamba3/hopper/prepare.h"

namespace ssmbench::mamba3_hopper {

/// 8 bytes by one instruction: the compiler would make two of it.
__device__ inline void store_two_words(void* to, std::uint32_t first, std::uint32_t second) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(to)), "r"(first), "r"(second)
               : "memory");
}

/// Four pairs of a row of 16-bit elements. Words of "interleaved" are a pair each; of "halves" two are of
/// first elements and two of second ones.
template <bool kInterleaved>
struct Quad {
  std::uint32_t words[4];

  template <class Io>
  __device__ static Quad load(const Io* row, int quad, int dstate) {
    if constexpr (kInterleaved) {
      const uint4 all = *reinterpret_cast<const uint4*>(row + first_of_quad(quad, true));
      return {{all.x, all.y, all.z, all.w}};
    }
    const uint2 first = *reinterpret_cast<const uint2*>(row + first_of_quad(quad, false));
    const uint2 second = *reinterpret_cast<const uint2*>(row + rest_of_quad(quad, false, dstate));
    return {{first.x, first.y, second.x, second.y}};
  }
  template <class Io>
  __device__ void store(Io* row, int quad, int dstate) const {
    if constexpr (kInterleaved) {
      store_elements(row + first_of_quad(quad, true),
                     Elements8<Io>{{make_uint4(words[0], words[1], words[2], words[3])}});
    } else {
      store_two_words(row + first_of_quad(quad, false), words[0], words[1]);
      store_two_words(row + rest_of_quad(quad, false, dstate), words[2], words[3]);
    }
  }
};

/// Four pairs in f32, in the order of Quad's words: element e of pair p.
template <bool kInterleaved>
struct QuadValues {
  float values[8];

  __device__ static constexpr int at(int pair, int element) {
    return kInterleaved ? 2 * pair + element : 4 * element + pair;
  }
  __device__ static QuadValues load(const float* row, int quad, int dstate) {
    QuadValues to;
    load_vector(to.values, row + first_of_quad(quad, kInterleaved));
    load_vector(to.values + 4, row + rest_of_quad(quad, kInterleaved, dstate));
    return to;
  }
  __device__ void store(float* row, int quad, int dstate) const {
    store_vector(row + first_of_quad(quad, kInterleaved), values[0], values[1], values[2], values[3]);
    store_vector(row + rest_of_quad(quad, kInterleaved, dstate), values[4], values[5], values[6], values[7]);
  }
  template <class Io>
  __device__ QuadValues plus(const Quad<kInterleaved>& of) const {
    QuadValues sum;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 two = unpack_pair<Io>(of.words[i]);
      sum.values[2 * i] = values[2 * i] + two.x;
      sum.values[2 * i + 1] = values[2 * i + 1] + two.y;
    }
    return sum;
  }
  __device__ void turn(int pair, float sine, float cosine) {
    const float x0 = values[at(pair, 0)];
    const float x1 = values[at(pair, 1)];
    values[at(pair, 0)] = x0 * cosine - x1 * sine;
    values[at(pair, 1)] = x0 * sine + x1 * cosine;
  }
  template <class Io>
  __device__ Quad<kInterleaved> rounded() const {
    Quad<kInterleaved> to;
#pragma unroll
    for (int i = 0; i < 4; ++i) to.words[i] = pack_pair<Io>(values[2 * i], values[2 * i + 1]);
    return to;
  }
};

}  // namespace ssmbench::mamba3_hopper
