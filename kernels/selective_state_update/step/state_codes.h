#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/common/host_device.h"
#include "kernels/common/scalar_math.h"

// How quantized states are read and written: integer codes by words of 32 bits, scales of rows, stochastic
// rounding. Host and device, so that tests cover all of it without a GPU.

namespace ssmbench::step {

SSMBENCH_HD inline std::uint32_t bits_of(float x) {
  std::uint32_t bits = 0;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
SSMBENCH_HD inline float float_of(std::uint32_t bits) {
  float x = 0;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/// Four of the bytes of `low` (0 to 3) and `high` (4 to 7); nibble i of `selector` names byte i of the result.
SSMBENCH_HD inline std::uint32_t select_bytes(std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
#ifdef __CUDA_ARCH__
  return __byte_perm(low, high, selector);
#else
  const std::uint64_t all = (std::uint64_t{high} << 32U) | low;
  std::uint32_t selected = 0;
  for (unsigned i = 0; i < 4; ++i)
    selected |= static_cast<std::uint32_t>(all >> 8U * (selector >> 4U * i & 7U) & 0xFFU) << 8U * i;
  return selected;
#endif
}

// Integers and floats without conversion instructions: 2^23 + k has k in its lowest bits, and so has
// 1.5·2^23 + k where k is negative, in two's complement. Adding the latter rounds to nearest even.

inline constexpr std::uint32_t kIntegerBits = 0x4B000000U;  // of 2^23
inline constexpr float kIntegerBase = 0x1p23F;
inline constexpr float kRounder = 0x1.8p23F;

/// The four signed bytes of a word, the lowest first.
SSMBENCH_HD inline void decode_i8(std::uint32_t word, float* to) {
  const std::uint32_t biased = word ^ 0x80808080U;
  for (unsigned i = 0; i < 4; ++i)
    to[i] = float_of(select_bytes(biased, kIntegerBits, 0x7650U | i)) - (kIntegerBase + 128.0F);
}
/// The two signed halves of a word, the lower one first.
SSMBENCH_HD inline void decode_i16(std::uint32_t word, float* to) {
  const std::uint32_t biased = word ^ 0x80008000U;
  to[0] = float_of(select_bytes(biased, kIntegerBits, 0x7610U)) - (kIntegerBase + 32768.0F);
  to[1] = float_of(select_bytes(biased, kIntegerBits, 0x7632U)) - (kIntegerBase + 32768.0F);
}
/// from[i]·factor rounded to nearest even; it has to be within ±127 then, or ±32767.
SSMBENCH_HD inline std::uint32_t encode_i8(const float* from, float factor) {
  const std::uint32_t low =
      select_bytes(bits_of(from[0] * factor + kRounder), bits_of(from[1] * factor + kRounder), 0x0040U);
  const std::uint32_t high =
      select_bytes(bits_of(from[2] * factor + kRounder), bits_of(from[3] * factor + kRounder), 0x0040U);
  return select_bytes(low, high, 0x5410U);
}
SSMBENCH_HD inline std::uint32_t encode_i16(const float* from, float factor) {
  return select_bytes(bits_of(from[0] * factor + kRounder), bits_of(from[1] * factor + kRounder), 0x5410U);
}

/// Scale of a row whose largest magnitude is `largest`, for codes of up to 1/`inverse_most`: 1 for zeros. At
/// least the smallest normal number, so that its reciprocal is finite, and largest times that, with two
/// roundoffs each in scale and reciprocal, no code too large.
SSMBENCH_HD inline float scale_of_row(float largest, float inverse_most) {
  return largest > 0.0F ? fmaxf(largest * inverse_most, 0x1p-126F) : 1.0F;
}

/// Q/largest for Q = `most`, no number between two codes being rounded past the largest one: `largest` times
/// that is at most Q. Where scale_of_row is at its least, the reciprocal of that.
SSMBENCH_HD inline float factor_of_row(float largest, float most) {
  const float factor = fminf(most / largest, 0x1p126F);
  return fmaf(largest, factor, -most) > 0.0F ? float_of(bits_of(factor) - 1U) : factor;
}

/// Philox4x32 with `kRounds` rounds, of several counters with the same key. Source: Salmon, Moraes, Dror,
/// Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), section 4.2.
template <int kRounds, int kCount>
SSMBENCH_HD void philox4x32(std::uint32_t (&counters)[kCount][4], std::uint32_t key_low,
                            std::uint32_t key_high) {
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kCount; ++i) {
      std::uint32_t(&counter)[4] = counters[i];
      const std::uint64_t first = std::uint64_t{0xD2511F53U} * counter[0];
      const std::uint64_t second = std::uint64_t{0xCD9E8D57U} * counter[2];
      counter[0] = static_cast<std::uint32_t>(second >> 32U) ^ counter[1] ^ key_low;
      counter[1] = static_cast<std::uint32_t>(second);
      counter[2] = static_cast<std::uint32_t>(first >> 32U) ^ counter[3] ^ key_high;
      counter[3] = static_cast<std::uint32_t>(first);
    }
    key_low += 0x9E3779B9U;
    key_high += 0xBB67AE85U;
  }
}

/// Random bits for kDraws neighbouring elements of a tensor of states: elements 2k and 2k + 1 have word k of
/// Philox at counter (i/8, stream), with the seed as its key; seven rounds, the fewest that the source found
/// to pass all tests.
inline constexpr int kDraws = 8;
using Draws = std::uint32_t[4];

/// Draws of kCount runs of elements, which begin at multiples of kDraws; round by round, so that they share
/// the keys.
template <int kCount>
SSMBENCH_HD void draw(Draws (&draws)[kCount], std::int64_t seed, std::uint32_t stream,
                      const std::int64_t (&first)[kCount]) {
  for (int i = 0; i < kCount; ++i) {
    const auto block = static_cast<std::uint64_t>(first[i]) / kDraws;
    draws[i][0] = static_cast<std::uint32_t>(block);
    draws[i][1] = static_cast<std::uint32_t>(block >> 32U);
    draws[i][2] = stream;
    draws[i][3] = 0;
  }
  philox4x32<7>(draws, static_cast<std::uint32_t>(seed),
                static_cast<std::uint32_t>(static_cast<std::uint64_t>(seed) >> 32U));
}

/// kBits random bits from a word that two elements have: the lowest for the even one, the highest for the
/// other. The upper 12 of each are no bits of the other's upper 12.
template <int kBits>
SSMBENCH_HD std::uint32_t random_bits(std::uint32_t word, bool odd) {
  return odd ? word >> static_cast<unsigned>(32 - kBits) : word & ((1U << static_cast<unsigned>(kBits)) - 1U);
}
/// 128 + d/2^16 for 16 random bits d: by one instruction.
SSMBENCH_HD inline float random_past_128(std::uint32_t word, bool odd) {
  return float_of(select_bytes(word, 0x43000000U, odd ? 0x7632U : 0x7610U));
}

/// floor(x) + base and floor(x·factor) + base, where `base` is so large that floats lie 1 apart.
SSMBENCH_HD inline float add_floor(float x, float base) {
#ifdef __CUDA_ARCH__
  return __fadd_rd(x, base);
#else
  return floorf(x) + base;
#endif
}
SSMBENCH_HD inline float add_floor(float x, float factor, float base) {
#ifdef __CUDA_ARCH__
  return __fmaf_rd(x, factor, base);
#else
  return static_cast<float>(floor(static_cast<double>(x) * factor)) + base;
#endif
}

// from[i]·factor to one of the two integers next to it, the upper one with a probability of its distance from
// the lower one, to 16 bits: floor(x + u), u uniform on [0, 1). Elements 2k and 2k + 1 have draws[k].

/// Four bytes. |from·factor| ≤ 127: x + 128 + u has 24 bits.
SSMBENCH_HD inline std::uint32_t encode_i8(const float* from, float factor, const std::uint32_t* draws) {
  std::uint32_t codes[4];
  for (int i = 0; i < 4; ++i)
    codes[i] =
        bits_of(add_floor(from[i] * factor + random_past_128(draws[i / 2], i % 2 != 0), kRounder - 128.0F));
  return select_bytes(select_bytes(codes[0], codes[1], 0x0040U), select_bytes(codes[2], codes[3], 0x0040U),
                      0x5410U);
}
/// Two halves. |from·factor| ≤ 32767: the part past the lower integer is taken apart.
SSMBENCH_HD inline std::uint32_t encode_i16(const float* from, float factor, std::uint32_t draws) {
  std::uint32_t codes[2];
  for (int i = 0; i < 2; ++i) {
    const float lower = add_floor(from[i], factor, kRounder);
    const float part = from[i] * factor - (lower - kRounder);
    codes[i] = bits_of(lower) + bits_of(add_floor(part + random_past_128(draws, i != 0), kRounder - 128.0F));
  }
  return select_bytes(codes[0], codes[1], 0x5410U);
}

/// The smaller one; NaN if one of them is.
SSMBENCH_HD inline float smaller_or_nan(float a, float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  float smaller = 0;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller) : "f"(a), "f"(b));
  return smaller;
#else
  return a < b || a != a ? a : b;
#endif
}

/// x to one of the two numbers next to it among those of a float type of 24 − kDropped significand bits whose
/// smallest normal number is `least`, subnormals included; |x| ≤ its largest. With `least` added, subnormal
/// numbers lie as far apart in f32 as the smallest normal ones. `random` is added to the bits that are
/// dropped, and carries into the others as often as these say. NaN and infinity stay.
template <int kDropped>
SSMBENCH_HD float round_significand(float x, float least, std::uint32_t random) {
  constexpr std::uint32_t kMask = (1U << static_cast<unsigned>(kDropped)) - 1U;
  const float magnitude = fabsf(x);
  if (!(magnitude < INFINITY)) return x;
  const float lift = magnitude < least ? least : 0.0F;
  return copysignf(float_of((bits_of(magnitude + lift) + random) & ~kMask) - lift, x);
}
/// The same of kDraws numbers; of those that are normal and finite, which nearly all are, by fewer
/// instructions.
template <int kDropped>
SSMBENCH_HD void round_significands(float* x, float least, const Draws& draws) {
  constexpr std::uint32_t kMask = (1U << static_cast<unsigned>(kDropped)) - 1U;
  float smallest = fabsf(x[0]);
  for (int i = 1; i < kDraws; ++i) smallest = smaller_or_nan(smallest, fabsf(x[i]));
  if (smallest >= least) {
    for (int i = 0; i < kDraws; ++i)
      x[i] = float_of((bits_of(x[i]) + random_bits<kDropped>(draws[i / 2], i % 2 != 0)) & ~kMask);
  } else {
    for (int i = 0; i < kDraws; ++i)
      x[i] = round_significand<kDropped>(x[i], least, random_bits<kDropped>(draws[i / 2], i % 2 != 0));
  }
}

}  // namespace ssmbench::step
