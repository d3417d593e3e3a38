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

/// Philox4x32 with `kRounds` rounds. Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as
/// 1, 2, 3" (SC 2011), section 4.2.
template <int kRounds>
SSMBENCH_HD void philox4x32(std::uint32_t (&counter)[4], std::uint32_t key_low, std::uint32_t key_high) {
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t first = std::uint64_t{0xD2511F53U} * counter[0];
    const std::uint64_t second = std::uint64_t{0xCD9E8D57U} * counter[2];
    counter[0] = static_cast<std::uint32_t>(second >> 32U) ^ counter[1] ^ key_low;
    counter[1] = static_cast<std::uint32_t>(second);
    counter[2] = static_cast<std::uint32_t>(first >> 32U) ^ counter[3] ^ key_high;
    counter[3] = static_cast<std::uint32_t>(first);
    key_low += 0x9E3779B9U;
    key_high += 0xBB67AE85U;
  }
}

/// Random numbers of 16 bits for kDraws neighbouring elements of a tensor of states. Element i has half i mod
/// 2 of word i/2 mod 4 of Philox at counter (i/8, stream), with the seed as its key; seven rounds, the fewest
/// that the source found to pass all tests.
inline constexpr int kDraws = 8;
struct Draws {
  std::uint32_t words[4];

  /// Of those that element `i` is among.
  SSMBENCH_HD Draws(std::int64_t seed, std::uint32_t stream, std::int64_t i) {
    const auto block = static_cast<std::uint64_t>(i) / kDraws;
    words[0] = static_cast<std::uint32_t>(block);
    words[1] = static_cast<std::uint32_t>(block >> 32U);
    words[2] = stream;
    words[3] = 0;
    philox4x32<7>(words, static_cast<std::uint32_t>(seed),
                  static_cast<std::uint32_t>(static_cast<std::uint64_t>(seed) >> 32U));
  }
  /// Of element `i` modulo kDraws, in the bits of kDrawMask; the others are anything. By selection: with an
  /// index that is not constant, words would be in memory.
  SSMBENCH_HD std::uint32_t of(int i) const {
    const std::uint32_t low = (i & 2) != 0 ? words[1] : words[0];
    const std::uint32_t high = (i & 2) != 0 ? words[3] : words[2];
    const std::uint32_t word = (i & 4) != 0 ? high : low;
    return (i & 1) != 0 ? word >> 9U : word << 7U;
  }
};
/// Where a draw is in a word, so that it becomes the upper bits of a significand by one instruction.
inline constexpr std::uint32_t kDrawMask = 0x007FFF80U;

/// 1 + (d + ½)/2^16 for the 16 bits d of a draw: uniform on (1, 2).
SSMBENCH_HD inline float one_and_uniform(std::uint32_t draw) {
  return float_of((draw & kDrawMask) | 0x3F800040U);
}

/// x to one of the two integers next to it, the upper one with a probability of x less the lower one, to 17
/// bits. |x| < 2^23.
SSMBENCH_HD inline float round_to_integer(float x, std::uint32_t draw) {
  const float low = floorf(x);
  return one_and_uniform(draw) - 1.0F < x - low ? low + 1.0F : low;
}

/// What is to be rounded to the nearest integer for the same, with |x| ≤ 127: x and the random number have 24
/// bits together, so that integers stay.
SSMBENCH_HD inline float dithered(float x, std::uint32_t draw) {
  return x + (one_and_uniform(draw) - 1.5F);
}

/// x to one of the two numbers next to it among those of a float type of 24 − kDropped significand bits whose
/// smallest normal number is `least`, subnormals included; |x| ≤ its largest. With `least` added, subnormal
/// numbers lie as far apart in f32 as the smallest normal ones. A random number is added to the bits that are
/// dropped, and carries into the others as often as these say, to 17 bits. NaN and infinity stay.
template <int kDropped>
SSMBENCH_HD float round_significand(float x, float least, std::uint32_t draw) {
  constexpr std::uint32_t kMask = (1U << static_cast<unsigned>(kDropped)) - 1U;
  const float magnitude = fabsf(x);
  if (!(magnitude < INFINITY)) return x;
  const float lift = magnitude < least ? least : 0.0F;
  std::uint32_t random = 0;
  if constexpr (kDropped <= 16)
    random = (draw & kDrawMask) >> static_cast<unsigned>(23 - kDropped);
  else
    random = ((draw & kDrawMask) | 0x40U) >> static_cast<unsigned>(23 - kDropped);
  const float rounded = float_of((bits_of(magnitude + lift) + random) & ~kMask) - lift;
  return copysignf(rounded, x);
}

}  // namespace ssmbench::step
