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

/// States of a word, and their codes, rounded to nearest; kDraws states to words, rounded stochastically.
/// Codes of 8 bits as f16, too: four, by pairs. kMost: Q of the scale, or 0 where there is none.
template <DType kState>
struct StateCodes;
template <>
struct StateCodes<DType::i8> {
  static constexpr float kMost = 127.0F;
  __device__ static void decode(std::uint32_t word, float* to) { decode_i8(word, to); }
  __device__ static void decode_to_f16(std::uint32_t word, std::uint32_t* pairs) {
    decode_i8_to_f16(word, pairs);
  }
  __device__ static std::uint32_t encode(const float* from, float factor) { return encode_i8(from, factor); }
  __device__ static void encode(const float* from, float factor, const Draws& draws, std::uint32_t* words) {
#pragma unroll
    for (int i = 0; i < 2; ++i) words[i] = encode_i8(from + 4 * i, factor, draws + 2 * i);
  }
};
template <>
struct StateCodes<DType::i16> {
  static constexpr float kMost = 32767.0F;
  __device__ static void decode(std::uint32_t word, float* to) { decode_i16(word, to); }
  __device__ static std::uint32_t encode(const float* from, float factor) { return encode_i16(from, factor); }
  __device__ static void encode(const float* from, float factor, const Draws& draws, std::uint32_t* words) {
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = encode_i16(from + 2 * i, factor, draws[i]);
  }
};
template <>
struct StateCodes<DType::e4m3> {
  static constexpr float kMost = 448.0F;
  __device__ static void decode_to_f16(std::uint32_t word, std::uint32_t* pairs) {
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      const __half2_raw two =
          __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(word >> 16U * i), __NV_E4M3);
      pairs[i] = static_cast<std::uint32_t>(two.y) << 16U | two.x;
    }
  }
  __device__ static void decode(std::uint32_t word, float* to) {
    std::uint32_t pairs[2];
    decode_to_f16(word, pairs);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float2 two = unpack_pair<__half>(pairs[i]);
      to[2 * i] = two.x;
      to[2 * i + 1] = two.y;
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
  __device__ static void encode(const float* from, float factor, const Draws& draws, std::uint32_t* words) {
#pragma unroll
    for (int i = 0; i < 2; ++i) words[i] = encode_e4m3(from + 4 * i, factor, draws + 2 * i);
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
  __device__ static void encode(const float* from, float /*factor*/, const Draws& draws,
                                std::uint32_t* words) {
    round_to_halves(from, draws, words);
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

/// Rows of a thread in a tensor of states: `first` and others `pass` behind it. `is_odd`: whether the first one
/// is p = 2k + 1 of its head. With kArePairs there are two, 2k and 2k + 1.
struct CodedRows {
  std::int64_t first;
  int pass;
  bool is_odd;
};

/// The random words of each row, for kDraws states of vector `vector` of 16 bytes: the first ones, or `second`.
template <bool kArePairs, int kRows>
__device__ void draw_rows(Draws (&draws)[kRows], const CodedRows& rows, unsigned vector, bool second,
                          const Rounding& rounding) {
  Draws words;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const bool is_odd = kArePairs ? r % 2 != 0 : rows.is_odd != ((r * rows.pass) % 2 != 0);
    if (!kArePairs || r % 2 == 0)
      draw(words, rounding.seed, rounding.stream, rows.first + r * rows.pass - (is_odd ? 1 : 0), vector);
    set_of_draws(draws[r], words, (second ? 2 : 0) + (is_odd ? 1 : 0));
  }
}

/// h·factor of some rows as codes, rounded stochastically.
template <DType kState, bool kArePairs, class Division, int kRows>
__device__ void encode_stochastically(QuantizedPart<kState, Division>* parts,
                                      const float (&h)[kRows][Division::kStates],
                                      const float (&factors)[kRows], const CodedRows& rows,
                                      const Division& division, const Rounding& rounding) {
  using Bits = StateBits<kState>;
  constexpr int kPerWord = 4 / sizeof(Bits);
  constexpr int kPerVector = 16 / sizeof(Bits);
  constexpr int kStep = Division::kWidth < kDraws ? Division::kWidth : kDraws;
#pragma unroll
  for (int s = 0; s < Division::kStates; s += kStep) {
    const int v = s / Division::kWidth;
    const int of_vector = s % Division::kWidth;
    const auto n = static_cast<unsigned>(division.first(v));
    Draws draws[kRows];
    draw_rows<kArePairs>(draws, rows, n / kPerVector,
                         kStep == kDraws ? of_vector >= kDraws : n % kPerVector >= kDraws, rounding);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      std::uint32_t words[kDraws / kPerWord];
      if constexpr (kStep == kDraws) {
        StateCodes<kState>::encode(h[r] + s, factors[r], draws[r], words);
#pragma unroll
        for (int i = 0; i < kDraws / kPerWord; ++i)
          parts[r].part.pieces[v][0].words[of_vector / kPerWord + i] = words[i];
      } else {  // some of the eight that draws are for
        float eight[kDraws];
#pragma unroll
        for (int i = 0; i < kDraws; ++i) eight[i] = h[r][s + i % kStep];
        StateCodes<kState>::encode(eight, factors[r], draws[r], words);
        const unsigned element = n % kDraws;
        std::uint32_t word = words[0];
#pragma unroll
        for (unsigned i = 1; i < kDraws / kPerWord; ++i) word = element / kPerWord == i ? words[i] : word;
        if constexpr (kStep == 1)
          parts[r].part.pieces[v][0].element =
              static_cast<Bits>(word >> 8 * sizeof(Bits) * (element % kPerWord));
        else
          parts[r].part.pieces[v][0].words[0] = word;
      }
    }
  }
}

/// The codes of a lane's states h of some rows. Returns the scale of row (lane modulo kRows); all lanes of the
/// warp take part. One lane in kRows finds the scale of a row, and rows have no branches between them, so that
/// they overlap.
template <DType kState, bool kArePairs = false, class Division, int kRows>
__device__ float quantize(QuantizedPart<kState, Division>* parts, const float (&h)[kRows][Division::kStates],
                          const CodedRows& rows, const Division& division, const Rounding& rounding) {
  constexpr float kMost = StateCodes<kState>::kMost;
  const bool is_stochastic = kHasRandom<kState> && rounding.is_stochastic;
  float scale = 1.0F;
  float factors[kRows];
#pragma unroll
  for (float& factor : factors) factor = 1.0F;
  if constexpr (kHasScale<kState>) {
    float largest[kRows]{};
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int s = 0; s < Division::kStates; ++s) largest[r] = fmaxf(largest[r], fabsf(h[r][s]));
    const float of_row = reduce_rows<kRows>(largest, division.lane, division.lanes,
                                            [](float a, float b) { return fmaxf(a, b); });
    scale = scale_of_row(of_row, 1.0F / kMost);
    const float factor = is_stochastic ? factor_of_row(of_row, kMost) : reciprocal_approximate(scale);
#pragma unroll
    for (int r = 0; r < kRows; ++r) factors[r] = __shfl_sync(0xFFFFFFFFU, factor, r, division.lanes);
  }
  if constexpr (kHasRandom<kState>)
    if (is_stochastic) {
      encode_stochastically<kState, kArePairs>(parts, h, factors, rows, division, rounding);
      return scale;
    }
#pragma unroll
  for (int r = 0; r < kRows; ++r) parts[r].encode(h[r], factors[r]);
  return scale;
}

/// Whether rows of the warp may be computed in units, of which the smallest of a lane and the largest
/// magnitude of what tokens add are given: not where that would lose the codes, or not be finite.
__device__ inline bool have_units(float smallest, float largest) {
  return __all_sync(0xFFFFFFFFU,
                    static_cast<int>(smallest >= 0x1p-40F) & static_cast<int>(largest < 0x1p100F)) != 0;
}

}  // namespace ssmbench::step
