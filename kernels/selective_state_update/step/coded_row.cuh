#pragma once

// What a lane of cuda-step holds of a row of states in any dtype, how it is read, and how it is rounded: to
// nearest or stochastically, with a scale for the row or without.

#include <cuda_fp8.h>

#include <type_traits>

#include "kernels/selective_state_update/step/row.cuh"
#include "kernels/selective_state_update/step/state_codes.h"

namespace ssmbench::step {

/// As many bits as a state has in memory.
template <DType kState>
using StateBits = std::conditional_t<
    kState == DType::f32, std::uint32_t,
    std::conditional_t<kState == DType::i8 || kState == DType::e4m3, std::uint8_t, std::uint16_t>>;

/// States of a word, and their codes; Q of the scale, or 0 where there is none. `round` is what becomes one of
/// two codes when it is rounded to nearest.
template <DType kState>
struct StateCodes;
template <>
struct StateCodes<DType::i8> {
  static constexpr float kMost = 127.0F;
  __device__ static void decode(std::uint32_t word, float* to) { decode_i8(word, to); }
  __device__ static std::uint32_t encode(const float* from, float factor) { return encode_i8(from, factor); }
  __device__ static float round(float x, std::uint32_t draw) { return dithered(x, draw); }
};
template <>
struct StateCodes<DType::i16> {
  static constexpr float kMost = 32767.0F;
  __device__ static void decode(std::uint32_t word, float* to) { decode_i16(word, to); }
  __device__ static std::uint32_t encode(const float* from, float factor) { return encode_i16(from, factor); }
  __device__ static float round(float x, std::uint32_t draw) { return round_to_integer(x, draw); }
};
template <>
struct StateCodes<DType::e4m3> {
  static constexpr float kMost = 448.0F;
  __device__ static void decode(std::uint32_t word, float* to) {
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      const __half2_raw two =
          __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(word >> 16U * i), __NV_E4M3);
      const float2 pair = __half22float2(__half2(two));
      to[2 * i] = pair.x;
      to[2 * i + 1] = pair.y;
    }
  }
  __device__ static std::uint32_t encode(const float* from, float factor) {
    std::uint32_t word = 0;
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      const float2 pair = make_float2(from[2 * i] * factor, from[2 * i + 1] * factor);
      word |= static_cast<std::uint32_t>(__nv_cvt_float2_to_fp8x2(pair, __NV_SATFINITE, __NV_E4M3))
              << 16U * i;
    }
    return word;
  }
  __device__ static float round(float x, std::uint32_t draw) {
    return round_significand<20>(x, 0x1p-6F, draw);
  }
};
template <>
struct StateCodes<DType::f16> {
  static constexpr float kMost = 0.0F;
  __device__ static void decode(std::uint32_t word, float* to) {
    const float2 two = unpack_pair<__half>(word);
    to[0] = two.x;
    to[1] = two.y;
  }
  __device__ static std::uint32_t encode(const float* from, float /*factor*/) {
    return pack_pair<__half>(from[0], from[1]);
  }
  __device__ static float round(float x, std::uint32_t draw) {
    return round_significand<13>(x, 0x1p-14F, draw);
  }
};
/// Those of bf16 and f32 are rounded to nearest alone.
template <>
struct StateCodes<DType::f32> {
  static constexpr float kMost = 0.0F;
  __device__ static void decode(std::uint32_t word, float* to) { *to = __uint_as_float(word); }
  __device__ static std::uint32_t encode(const float* from, float /*factor*/) {
    return __float_as_uint(*from);
  }
};
template <>
struct StateCodes<DType::bf16> {
  static constexpr float kMost = 0.0F;
  __device__ static void decode(std::uint32_t word, float* to) {
    const float2 two = unpack_pair<__nv_bfloat16>(word);
    to[0] = two.x;
    to[1] = two.y;
  }
  __device__ static std::uint32_t encode(const float* from, float /*factor*/) {
    return pack_pair<__nv_bfloat16>(from[0], from[1]);
  }
};

template <DType kState>
constexpr bool kHasScale = StateCodes<kState>::kMost > 0.0F;
/// Whether they may be rounded stochastically.
template <DType kState>
constexpr bool kHasRandom = kState != DType::bf16&& kState != DType::f32;

/// A lane's part of a row of states of any dtype.
template <DType kState, class Division>
struct QuantizedPart {
  using Bits = StateBits<kState>;
  using Codes = StateCodes<kState>;
  static constexpr int kPerWord = 4 / sizeof(Bits);
  RowPart<Bits, Division> part;

  /// Of the row that begins at `row`; it is not read where `is_there` is false.
  __device__ void load(const Bits* row, const Division& division, bool is_there) {
    part.load(row, division, is_there);
  }
  __device__ void store(Bits* row, const Division& division) const { part.store(row, division); }
  /// The codes as numbers.
  __device__ void decode(float (&to)[Division::kStates]) const {
#pragma unroll
    for (int v = 0; v < Division::kVectors; ++v)
      if constexpr (Division::kWidth == 1) {
        float values[kPerWord];
        Codes::decode(part.pieces[v][0].element, values);
        to[v] = values[0];
      } else {
#pragma unroll
        for (int i = 0; i < Division::kWidth / kPerWord; ++i)
          Codes::decode(part.pieces[v][0].words[i], to + v * Division::kWidth + i * kPerWord);
      }
  }
  /// from·factor as codes, rounded to nearest.
  __device__ void encode(const float (&from)[Division::kStates], float factor) {
#pragma unroll
    for (int v = 0; v < Division::kVectors; ++v)
      if constexpr (Division::kWidth == 1) {
        const float values[4]{from[v]};
        part.pieces[v][0].element = static_cast<Bits>(Codes::encode(values, factor));
      } else {
#pragma unroll
        for (int i = 0; i < Division::kWidth / kPerWord; ++i)
          part.pieces[v][0].words[i] = Codes::encode(from + v * Division::kWidth + i * kPerWord, factor);
      }
  }
};

/// How a tensor of states is rounded: each that is has a stream of random numbers of its own.
struct Rounding {
  bool is_stochastic;
  std::int64_t seed;
  std::uint32_t stream;

  __device__ Rounding(const StateStorage& storage, std::uint32_t of_tensor)
      : is_stochastic(storage.seed != nullptr), seed(is_stochastic ? *storage.seed : 0), stream(of_tensor) {}
};

/// h·factor to what becomes one of the two codes next to it; `row` of the tensor of states.
template <DType kState, class Division>
__device__ void round_stochastically(float (&h)[Division::kStates], float factor, std::int64_t row,
                                     const Division& division, const Rounding& rounding) {
  using Codes = StateCodes<kState>;
#pragma unroll
  for (int v = 0; v < Division::kVectors; ++v) {
    const std::int64_t first = row * division.dstate + division.first(v);
    if constexpr (Division::kWidth == 1) {
      const Draws draws(rounding.seed, rounding.stream, first);
      h[v] = Codes::round(h[v] * factor, draws.of(static_cast<int>(first % kDraws)));
    } else {
#pragma unroll
      for (int i = 0; i < Division::kWidth; i += kDraws) {
        const Draws draws(rounding.seed, rounding.stream, first + i);
#pragma unroll
        for (int k = 0; k < kDraws; ++k) {
          float& of_state = h[v * Division::kWidth + i + k];
          of_state = Codes::round(of_state * factor, draws.of(k));
        }
      }
    }
  }
}

/// The largest magnitude of rows, to all lanes that share one. Without branches, so that rows overlap.
template <int kRows, int kStates>
__device__ void largest_of_rows(const float (&h)[kRows][kStates], float (&largest)[kRows], int lanes) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    largest[r] = 0.0F;
#pragma unroll
    for (int s = 0; s < kStates; ++s) largest[r] = fmaxf(largest[r], fabsf(h[r][s]));
  }
#pragma unroll
  for (int distance = 1; distance < kWarpThreads; distance *= 2)
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float other = __shfl_xor_sync(0xFFFFFFFFU, largest[r], distance);
      if (distance < lanes) largest[r] = fmaxf(largest[r], other);
    }
}

/// The codes of a lane's states h of some rows, `pass` apart, and the rows' scales, which are the same in all
/// lanes of a row; all lanes of the warp take part.
template <DType kState, class Division, int kRows>
__device__ void quantize(QuantizedPart<kState, Division>* parts, float (&h)[kRows][Division::kStates],
                         float (&scales)[kRows], std::int64_t first, int pass, const Division& division,
                         const Rounding& rounding) {
  constexpr float kMost = StateCodes<kState>::kMost;
  float largest[kRows];
  if constexpr (kHasScale<kState>) largest_of_rows(h, largest, division.lanes);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    float factor = 1.0F;
    scales[r] = 1.0F;
    if constexpr (kHasScale<kState>) {
      scales[r] = scale_of_row(largest[r], 1.0F / kMost);
      factor = rounding.is_stochastic ? factor_of_row(largest[r], kMost) : reciprocal_approximate(scales[r]);
    }
    if constexpr (kHasRandom<kState>)
      if (rounding.is_stochastic) {
        round_stochastically<kState>(h[r], factor, first + r * pass, division, rounding);
        factor = 1.0F;
      }
    parts[r].encode(h[r], factor);
  }
}

}  // namespace ssmbench::step
