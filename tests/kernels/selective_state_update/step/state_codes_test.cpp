// How cuda-step reads, rounds and writes quantized states, and its random numbers.

#include "kernels/selective_state_update/step/state_codes.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "base/random.h"
#include "catch.h"
#include "model/dtype.h"

using namespace ssmbench;
using namespace ssmbench::step;

namespace {

constexpr std::uint32_t kAllDraws = 1U << 16U;

/// How many of all draws round x up, which is not between two others than `low` and `high`.
template <class Round>
std::uint32_t rounded_up(float x, float low, float high, const Round& round) {
  std::uint32_t up = 0;
  for (std::uint32_t draw = 0; draw < kAllDraws; ++draw) {
    const float rounded = round(x, draw << 7U | (draw & 1U ? ~kDrawMask : 0U));  // and anything
    REQUIRE((rounded == low || rounded == high));
    up += rounded == high ? 1U : 0U;
  }
  return up;
}

float through_f16(float x) {
  return f16_to_float(float_to_f16(x));
}
float through_e4m3(float x) {
  return e4m3_to_float(float_to_e4m3(x));
}

/// The neighbours of x among values that `through` rounds to, an ulp apart.
template <class Through>
std::array<float, 2> neighbours(float x, double ulp, const Through& through) {
  const auto low = static_cast<float>(std::floor(x / ulp) * ulp);
  const auto high = static_cast<float>(low + ulp);
  REQUIRE(through(low) == low);
  REQUIRE(through(high) == high);
  return {low, high};
}

}  // namespace

TEST_CASE("cuda-step reads and writes every integer code") {
  for (int first = -127; first <= 127; ++first) {
    const std::array<float, 4> codes{static_cast<float>(first), 127, static_cast<float>(-first), -127};
    std::array<float, 4> read{};
    const std::uint32_t word = encode_i8(codes.data(), 1);
    CHECK((word & 0xFFU) == static_cast<std::uint8_t>(first));
    CHECK(word >> 24U == 0x81U);
    decode_i8(word, read.data());
    REQUIRE(read == codes);
  }
  for (int first = -32767; first <= 32767; ++first) {
    const std::array<float, 2> codes{static_cast<float>(first), static_cast<float>(-first)};
    std::array<float, 2> read{};
    const std::uint32_t word = encode_i16(codes.data(), 1);
    REQUIRE((word & 0xFFFFU) == static_cast<std::uint16_t>(first));
    decode_i16(word, read.data());
    REQUIRE(read == codes);
  }
}

TEST_CASE("cuda-step rounds integer codes to nearest even") {
  const std::array<float, 4> ties{0.25F, 0.75F, 1.25F, -0.25F};  // times 2
  std::array<float, 4> read{};
  decode_i8(encode_i8(ties.data(), 2), read.data());
  CHECK(read == std::array<float, 4>{0, 2, 2, 0});
  const std::array<float, 2> more{100.26F, -100.24F};
  std::array<float, 2> both{};
  decode_i16(encode_i16(more.data(), 10), both.data());
  CHECK(both == std::array<float, 2>{1003, -1002});
}

TEST_CASE("cuda-step chooses scales by which the largest state has the largest code") {
  CHECK(scale_of_row(0, 1.0F / 127) == 1);
  for (const int most : {127, 32767, 448})
    for (int exponent = -149; exponent < 128; ++exponent)
      for (const float significand : {1.0F, 1.2345F, 1.9999999F}) {
        const float largest = std::ldexp(significand, exponent);
        CAPTURE(most, largest);
        const float scale = scale_of_row(largest, 1.0F / static_cast<float>(most));
        REQUIRE(scale >= std::numeric_limits<float>::min());
        const auto exact = static_cast<double>(largest) / most;
        REQUIRE(std::abs(scale - exact) <= std::max(3 * 0x1p-24 * exact, 0x1p-126));
        // What a reciprocal that is off by two roundoffs may make of it is no larger code.
        const double code = largest * (1 / static_cast<double>(scale)) * (1 + 0x1p-22);
        REQUIRE(std::nearbyint(code) <= most);
        if (exact >= 0x1p-126) REQUIRE(std::nearbyint(code) == most);
        const double within = static_cast<double>(largest) * factor_of_row(largest, static_cast<float>(most));
        REQUIRE(within <= most);
        if (exact >= 0x1p-126) REQUIRE(within >= most * (1 - 0x1p-22));
      }
}

TEST_CASE("cuda-step's random numbers are those of Philox") {
  for (const std::uint32_t i : {0U, 1U, 0xFFFFFFFFU, 123456789U}) {
    std::uint32_t words[4]{i, 2 * i + 1, i ^ 77U, 5};
    const std::array<std::uint32_t, 4> counter{words[0], words[1], words[2], words[3]};
    philox4x32<10>(words, i + 3, ~i);
    CHECK(std::array<std::uint32_t, 4>{words[0], words[1], words[2], words[3]} ==
          philox4x32_10(counter, {i + 3, ~i}));
  }
}

TEST_CASE("cuda-step draws another number for every state, seed and tensor") {
  std::set<std::uint32_t> words;
  const std::int64_t far = std::int64_t{1} << 40;
  for (const std::int64_t seed : {std::int64_t{0}, std::int64_t{1}, std::int64_t{1} << 32})
    for (const std::uint32_t stream : {0U, 1U})
      for (const std::int64_t element : {std::int64_t{0}, std::int64_t{8}, far}) {
        const Draws draws(seed, stream, element);
        for (int i = 0; i < kDraws; i += 2)
          words.insert((draws.of(i) & kDrawMask) >> 7U | (draws.of(i + 1) & kDrawMask) << 9U);
        CHECK(Draws(seed, stream, element + 7).of(7) == draws.of(7));  // of the same eight
      }
  CHECK(words.size() == std::size_t{3 * 2 * 3 * 4});
}

TEST_CASE("cuda-step rounds to integers as often up as their part past the lower one says") {
  for (const float x : {0.5F, -0.5F, 0.25F, -3.75F, 126.999F, -126.001F, 32766.5F, 1e-4F, -1e-4F}) {
    const float low = std::floor(x);
    const std::uint32_t up = rounded_up(x, low, low + 1, round_to_integer);
    CHECK(std::abs(up - static_cast<double>(x - low) * kAllDraws) <= 1);
  }
  for (const float x : {0.0F, 1.0F, -127.0F, 32767.0F})
    CHECK(rounded_up(x, x, x, round_to_integer) == kAllDraws);  // there is nothing to round
  const auto dither = [](float x, std::uint32_t draw) { return std::nearbyint(dithered(x, draw)); };
  for (const float x : {0.5F, -0.5F, 0.25F, -3.75F, 126.999F, -126.001F, 1e-4F, -1e-4F}) {
    const float low = std::floor(x);
    const std::uint32_t up = rounded_up(x, low, low + 1, dither);
    CHECK(std::abs(up - static_cast<double>(x - low) * kAllDraws) <= 1);
  }
  for (int x = -127; x <= 127; ++x) {
    const auto integer = static_cast<float>(x);
    REQUIRE(rounded_up(integer, integer, integer, dither) == kAllDraws);
  }
}

TEST_CASE("cuda-step rounds to f16 as often up as the part past the lower one says, subnormals included") {
  const auto round = [](float x, std::uint32_t draw) { return round_significand<13>(x, 0x1p-14F, draw); };
  for (const float x : {1.0003F, -1.0003F, 1000.3F, 65503.0F, 0x1.0FFp-14F, 0x1.8765p-16F, -0x1.8765p-20F,
                        0x1.4p-25F, -0x1p-26F, 0x1.FFFp-15F}) {
    const double ulp = ulp_at(std::abs(x), DType::f16);
    CAPTURE(x, ulp);
    const auto [low, high] = neighbours(x, ulp, through_f16);
    const std::uint32_t up = rounded_up(x, low, high, round);
    CHECK(std::abs(up - (x - low) / ulp * kAllDraws) <= 8);  // 13 of 16 bits are used
  }
  for (const float x : {0.0F, 1.0F, -0x1p-24F, 0x1p-14F, 65504.0F})
    CHECK(rounded_up(x, x, x, round) == kAllDraws);
  CHECK(std::isnan(round(std::bit_cast<float>(0x7FFFFFFFU), 0xFFFF)));
  CHECK(round(-std::numeric_limits<float>::infinity(), 0xFFFF) == -std::numeric_limits<float>::infinity());
}

TEST_CASE("cuda-step rounds to e4m3 as often up as the part past the lower one says, subnormals included") {
  const auto round = [](float x, std::uint32_t draw) { return round_significand<20>(x, 0x1p-6F, draw); };
  for (const float x : {1.03F, -17.7F, 430.0F, 0x1.1Fp-6F, -0x1.8765p-8F, 0x1.4p-10F, 0x1.FFFp-7F}) {
    const double ulp = ulp_at(std::abs(x), DType::e4m3);
    CAPTURE(x, ulp);
    const auto [low, high] = neighbours(x, ulp, through_e4m3);
    CHECK(std::abs(rounded_up(x, low, high, round) - (x - low) / ulp * kAllDraws) <= 1);
  }
  for (const float x : {0.0F, 448.0F, -0x1p-9F, 0x1p-6F}) CHECK(rounded_up(x, x, x, round) == kAllDraws);
}
