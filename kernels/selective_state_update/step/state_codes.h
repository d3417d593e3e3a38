#pragma once

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#include <cuda_fp16.h>
#endif

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
/// The same as two pairs of f16, which have 11 bits: 1024 + k has k in its lowest ones.
#ifdef __CUDACC__
__device__ inline void decode_i8_to_f16(std::uint32_t word, std::uint32_t* pairs) {
  constexpr std::uint32_t kBases = 0x64646464U;  // upper bytes of 1024
  const std::uint32_t biased = word ^ 0x80808080U;
  for (unsigned i = 0; i < 2; ++i) {
    const std::uint32_t pair = select_bytes(biased, kBases, i == 0 ? 0x4140U : 0x4342U);
    const __half2 codes = __hsub2(reinterpret_cast<const __half2&>(pair), __float2half2_rn(1152.0F));
    pairs[i] = reinterpret_cast<const std::uint32_t&>(codes);
  }
}
#endif
/// The two signed halves of a word, the lower one first.
SSMBENCH_HD inline void decode_i16(std::uint32_t word, float* to) {
  const std::uint32_t biased = word ^ 0x80008000U;
  to[0] = float_of(select_bytes(biased, kIntegerBits, 0x7610U)) - (kIntegerBase + 32768.0F);
  to[1] = float_of(select_bytes(biased, kIntegerBits, 0x7632U)) - (kIntegerBase + 32768.0F);
}
/// from[i]·factor rounded to nearest even; it has to be within ±127 then, or ±32767. GPUs round two numbers
/// and pack them into bytes by one instruction.
SSMBENCH_HD inline std::uint32_t encode_i8(const float* from, float factor) {
#ifdef __CUDA_ARCH__
  std::uint32_t word = 0;
  for (int i = 2; i >= 0; i -= 2)
    asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %0;"
        : "+r"(word)
        : "r"(__float2int_rn(from[i + 1] * factor)), "r"(__float2int_rn(from[i] * factor)));
  return word;
#else
  const std::uint32_t low =
      select_bytes(bits_of(from[0] * factor + kRounder), bits_of(from[1] * factor + kRounder), 0x0040U);
  const std::uint32_t high =
      select_bytes(bits_of(from[2] * factor + kRounder), bits_of(from[3] * factor + kRounder), 0x0040U);
  return select_bytes(low, high, 0x5410U);
#endif
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
#ifdef __CUDA_ARCH__
  // Without the branches of a division, by quarters: no reciprocal is subnormal. A quotient that is not
  // finite becomes NaN, in place of which fminf gives the largest factor.
  const float inverse = reciprocal_approximate(0.25F * largest);
  const float near = 0.25F * most * inverse;
  const float quotient = fmaf(fmaf(-0.25F * largest, near, 0.25F * most), inverse, near);
#else
  const float quotient = most / largest;
#endif
  const float factor = fminf(quotient, 0x1p126F);
  return fmaf(largest, factor, -most) > 0.0F ? float_of(bits_of(factor) - 1U) : factor;
}

/// a·b. By one instruction, which the compiler does not find where it knows some factors earlier than others.
SSMBENCH_HD inline std::uint64_t wide_product(std::uint32_t a, std::uint32_t b) {
#ifdef __CUDA_ARCH__
  std::uint64_t product = 0;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
  return product;
#else
  return std::uint64_t{a} * b;
#endif
}

/// Philox4x32 with `kRounds` rounds. Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as
/// 1, 2, 3" (SC 2011), section 4.2.
template <int kRounds>
SSMBENCH_HD void philox4x32(std::uint32_t (&counter)[4], std::uint32_t key_low, std::uint32_t key_high) {
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t first = wide_product(counter[0], 0xD2511F53U);
    const std::uint64_t second = wide_product(counter[2], 0xCD9E8D57U);
    counter[0] = static_cast<std::uint32_t>(second >> 32U) ^ counter[1] ^ key_low;
    counter[1] = static_cast<std::uint32_t>(second);
    counter[2] = static_cast<std::uint32_t>(first >> 32U) ^ counter[3] ^ key_high;
    counter[3] = static_cast<std::uint32_t>(first);
    key_low += 0x9E3779B9U;
    key_high += 0xBB67AE85U;
  }
}

// Random bits of states. A call of Philox4x32 serves two rows of a head, p = 2k and 2k + 1, and of each the
// states that 16 bytes hold. It has seven rounds, the fewest that the source found to pass all tests. The seed
// is part of the counter and the key is constant, which costs no instructions. Its 128 bits are 16 words, each
// for two neighbouring states: sums modulo 2 of its four words, no sum twice. Any two numbers are independent,
// each is uniform, and so what is rounded has the mean, and all that is added up of it the variance, of
// numbers that are all independent.

/// States that have a Draws: 2k and 2k + 1 have word k.
inline constexpr int kDraws = 8;
using Draws = std::uint32_t[4];

/// One call, for `row` of all slots, the first one of two, and vector of 16 bytes `vector`; its words are set 0.
SSMBENCH_HD inline void draw(Draws& words, std::int64_t seed, std::uint32_t stream, std::int64_t row,
                             std::uint32_t vector) {
  words[0] = static_cast<std::uint32_t>(row);
  words[1] =
      static_cast<std::uint32_t>(static_cast<std::uint64_t>(row) >> 32U) << 16U | stream << 8U | vector;
  words[2] = static_cast<std::uint32_t>(seed);
  words[3] = static_cast<std::uint32_t>(static_cast<std::uint64_t>(seed) >> 32U);
  philox4x32<7>(words, 0, 0);
}

/// Sets 0 … 3 of four words: even rows have 0, and 2 for the second eight states of a vector; odd rows 1 and 3.
SSMBENCH_HD inline void set_of_draws(Draws& to, const Draws& words, int set) {
  const std::uint32_t a = words[0], b = words[1], c = words[2], d = words[3];
  if (set == 0) {
    to[0] = a, to[1] = b, to[2] = c, to[3] = d;
  } else if (set == 1) {
    to[0] = a ^ b, to[1] = b ^ c, to[2] = c ^ d, to[3] = d ^ a;
  } else if (set == 2) {
    to[0] = b ^ c ^ d, to[1] = a ^ c ^ d, to[2] = a ^ b ^ d, to[3] = a ^ b ^ c;
  } else {
    to[0] = a ^ c, to[1] = b ^ d, to[2] = a ^ b ^ c ^ d, to[3] = a ^ (b << 16U | b >> 16U);
  }
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
/// To the nearest integer.
SSMBENCH_HD inline std::uint32_t to_integer(float x) {
#ifdef __CUDA_ARCH__
  return static_cast<std::uint32_t>(__float2int_rn(x));
#else
  return static_cast<std::uint32_t>(static_cast<std::int32_t>(nearbyintf(x)));
#endif
}
/// Two halves. |from·factor| ≤ 32767: multiples of 2^-16 have 32 bits. (factor·2^16 may be too large for a float.)
SSMBENCH_HD inline std::uint32_t encode_i16(const float* from, float factor, std::uint32_t draws) {
  return select_bytes(to_integer(from[0] * factor * 0x1p16F) + random_bits<16>(draws, false),
                      to_integer(from[1] * factor * 0x1p16F) + random_bits<16>(draws, true), 0x7632U);
}

/// Four codes of e4m3, as often of the larger magnitude as the part past the smaller one says, to 20 bits.
/// |from·factor| ≤ 448. Times 2^-120 the numbers of e4m3 are numbers of f32 whose exponents have the same
/// codes, that of subnormal numbers too: the upper bits are the code, and random ones carry into it from
/// below.
SSMBENCH_HD inline std::uint32_t encode_e4m3(const float* from, float factor, const std::uint32_t* draws) {
  std::uint32_t pairs[2];
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t low = bits_of(from[2 * i] * factor * 0x1p-120F) + random_bits<20>(draws[i], false);
    const std::uint32_t high =
        bits_of(from[2 * i + 1] * factor * 0x1p-120F) + random_bits<20>(draws[i], true);
    const std::uint32_t both =
        select_bytes(low, high, 0x7632U);  // sign, 4 zeros, the code, and 4 bits past it
    pairs[i] = (both << 4U & 0x7FFF7FFFU) | (both & 0x80008000U);
  }
  return select_bytes(pairs[0], pairs[1], 0x7531U);
}

/// Two floats as f16, rounded towards zero, the first one in the lower half.
SSMBENCH_HD inline std::uint32_t truncate_pair(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  std::uint32_t pair = 0;
  asm("cvt.rz.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  std::uint32_t pair = 0;
  const float both[2]{low, high};
  for (unsigned i = 0; i < 2; ++i) {
    const std::uint32_t bits = bits_of(both[i]);
    const float magnitude = fabsf(both[i]);
    std::uint32_t half = 0x7FFFU;  // NaN
    if (magnitude < 0x1p-14F)
      half = static_cast<std::uint32_t>(magnitude * 0x1p24F);
    else if (magnitude < 65536.0F)
      half = ((bits & 0x7FFFFFFFU) >> 13U) - (112U << 10U);
    else if (magnitude < INFINITY)
      half = 0x7BFFU;
    else if (magnitude == INFINITY)
      half = 0x7C00U;
    pair |= (half | (bits >> 16U & 0x8000U)) << 16U * i;
  }
  return pair;
#endif
}

/// Whether all f16 of four words are at least 2^-14 in magnitude and less than 2^15; not if one is NaN.
SSMBENCH_HD inline bool are_normal(const std::uint32_t* words) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  std::uint32_t smallest[3], largest[3];
  for (int i = 0; i < 3; ++i) {
    const std::uint32_t a = (i < 2 ? words[2 * i] : smallest[0]) & 0x7FFF7FFFU;
    const std::uint32_t b = (i < 2 ? words[2 * i + 1] : smallest[1]) & 0x7FFF7FFFU;
    const std::uint32_t c = i < 2 ? a : largest[0];
    const std::uint32_t d = i < 2 ? b : largest[1];
    asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(smallest[i]) : "r"(a), "r"(b));
    asm("max.f16x2 %0, %1, %2;" : "=r"(largest[i]) : "r"(c), "r"(d));
  }
  return __hbge2(reinterpret_cast<const __half2&>(smallest[2]), __half2(__half2_raw{0x0400, 0x0400})) &&
         __hblt2(reinterpret_cast<const __half2&>(largest[2]), __half2(__half2_raw{0x7800, 0x7800}));
#else
  bool are = true;
  for (unsigned i = 0; i < 8; ++i) {
    const std::uint32_t magnitude = words[i / 2] >> 16U * (i % 2) & 0x7FFFU;
    are = are && magnitude >= 0x0400U && magnitude < 0x7800U;
  }
  return are;
#endif
}

/// Bits of a float that f16 drops.
inline constexpr int kDroppedByF16 = 13;

/// x to one of the two numbers of f16 next to it, subnormals included. With 2^-14 added, subnormal numbers lie
/// as far apart in f32 as the smallest normal ones. `random` is added to the bits that are dropped, and carries
/// into the others as often as these say. NaN and infinity stay; what is past the largest number becomes
/// infinity.
SSMBENCH_HD inline float round_to_f16(float x, std::uint32_t random) {
  constexpr std::uint32_t kMask = (1U << static_cast<unsigned>(kDroppedByF16)) - 1U;
  const float magnitude = fabsf(x);
  if (!(magnitude < INFINITY)) return x;
  const float lift = magnitude < 0x1p-14F ? 0x1p-14F : 0.0F;
  const float rounded = float_of((bits_of(magnitude + lift) + random) & ~kMask) - lift;
  return copysignf(rounded < 65536.0F ? rounded : INFINITY, x);
}
/// The same of kDraws numbers, to pairs of f16: of those that are normal and less than 2^15, which nearly all
/// are, by fewer instructions.
SSMBENCH_HD inline void round_to_halves(const float* x, const Draws& draws, std::uint32_t* halves) {
  for (int i = 0; i < kDraws / 2; ++i) {
    const std::uint32_t low = bits_of(x[2 * i]) + random_bits<kDroppedByF16>(draws[i], false);
    const std::uint32_t high = bits_of(x[2 * i + 1]) + random_bits<kDroppedByF16>(draws[i], true);
    halves[i] = truncate_pair(float_of(low), float_of(high));
  }
  if (are_normal(halves)) return;
  for (int i = 0; i < kDraws / 2; ++i)
    halves[i] = truncate_pair(round_to_f16(x[2 * i], random_bits<kDroppedByF16>(draws[i], false)),
                              round_to_f16(x[2 * i + 1], random_bits<kDroppedByF16>(draws[i], true)));
}

}  // namespace ssmbench::step
