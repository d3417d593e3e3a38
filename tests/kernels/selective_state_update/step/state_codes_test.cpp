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

/// Of all numbers of kBits random bits in a word, how many round x to `high`; none rounds it to another
/// number than that or `low`. `round` takes the word, and whether its upper bits are the ones.
template <int kBits, class Round>
std::uint32_t rounded_up(float x, float low, float high, const Round& round) {
  std::uint32_t up = 0;
  for (std::uint32_t random = 0; random < 1U << static_cast<unsigned>(kBits); ++random)
    for (const bool odd : {false, true}) {
      const std::uint32_t others = random % 3 == 0 ? 0xFFFFFFFFU : random % 3;  // anything
      constexpr auto kBeside = static_cast<unsigned>(32 - kBits);
      const std::uint32_t word = odd ? random << kBeside | others >> static_cast<unsigned>(kBits)
                                     : random | others << static_cast<unsigned>(kBits);
      const float rounded = round(x, word, odd);
      if (rounded != low && rounded != high) FAIL(x << " by word " << word << " is " << rounded);
      up += rounded == high ? 1U : 0U;
    }
  REQUIRE(up % 2 == 0);  // of both, the same
  return up / 2;
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
    std::uint32_t words[2][4]{{i, 2 * i + 1, i ^ 77U, 5}, {7, i, 3 * i, ~i}};
    std::vector<std::array<std::uint32_t, 4>> expected;
    for (const auto& counter : words)
      expected.push_back(philox4x32_10({counter[0], counter[1], counter[2], counter[3]}, {i + 3, ~i}));
    philox4x32<10>(words, i + 3, ~i);
    for (std::size_t k = 0; k < 2; ++k)
      CHECK(std::array<std::uint32_t, 4>{words[k][0], words[k][1], words[k][2], words[k][3]} == expected[k]);
  }
}

TEST_CASE("cuda-step draws another number for every state, seed and tensor") {
  std::set<std::uint32_t> words;
  const std::int64_t far = std::int64_t{1} << 40;
  for (const std::int64_t seed : {std::int64_t{0}, std::int64_t{1}, std::int64_t{1} << 32})
    for (const std::uint32_t stream : {0U, 1U}) {
      Draws draws[3], within[3];
      draw(draws, seed, stream, {0, 8, far});
      draw(within, seed, stream, {7, 8 + 3, far + 1});  // of the same eight
      for (int i = 0; i < 3; ++i) {
        words.insert(draws[i], draws[i] + 4);
        CHECK(std::equal(draws[i], draws[i] + 4, within[i]));
      }
    }
  CHECK(words.size() == std::size_t{3 * 2 * 3 * 4});
  CHECK(random_bits<13>(0xABCD1234U, false) == 0x1234U);
  CHECK(random_bits<13>(0xABCD1234U, true) == 0xABCD1234U >> 19U);
  CHECK(random_bits<20>(0xABCD1234U, false) == 0xD1234U);
  CHECK(random_bits<20>(0xABCD1234U, true) == 0xABCD1U);
}

TEST_CASE("cuda-step rounds to integers as often up as their part past the lower one says") {
  const auto to_i8 = [](float x, std::uint32_t word, bool odd) {
    const std::array<float, 4> from{x, x, x, x};
    const std::array<std::uint32_t, 2> draws{word, word};
    std::array<float, 4> read{};
    decode_i8(encode_i8(from.data(), 1, draws.data()), read.data());
    if (read[0] != read[2] || read[1] != read[3]) FAIL(x << " by word " << word << " depends on its place");
    return read[odd ? 1 : 0];
  };
  const auto to_i16 = [](float x, std::uint32_t word, bool odd) {
    const std::array<float, 2> from{x, x};
    std::array<float, 2> read{};
    decode_i16(encode_i16(from.data(), 1, word), read.data());
    return read[odd ? 1 : 0];
  };
  constexpr double kAll = 0x1p16;
  for (const float x : {0.5F, -0.5F, 0.25F, -3.75F, 126.999F, -126.001F, 1e-4F, -1e-4F, 1e-9F, -1e-9F}) {
    const float low = std::floor(x);
    const double part = static_cast<double>(x) - low;
    CHECK(std::abs(rounded_up<16>(x, low, low + 1, to_i8) - part * kAll) <= 1);
    CHECK(std::abs(rounded_up<16>(x, low, low + 1, to_i16) - part * kAll) <= 1);
  }
  for (const float x : {32766.5F, -32766.75F, 1234.125F, 300.0625F}) {
    const float low = std::floor(x);
    CHECK(rounded_up<16>(x, low, low + 1, to_i16) == (x - low) * kAll);
  }
  for (const float x : {0.0F, 1.0F, -1.0F, 126.0F, 127.0F, -127.0F}) {  // there is nothing to round
    CHECK(rounded_up<16>(x, x, x, to_i8) == kAll);
    CHECK(rounded_up<16>(x, x, x, to_i16) == kAll);
  }
  for (const float x : {32767.0F, -32767.0F, 32766.0F}) CHECK(rounded_up<16>(x, x, x, to_i16) == kAll);
}

namespace {

/// x among eight numbers, of which the others are `others`.
template <int kDropped>
float rounded_among(float x, float least, std::uint32_t word, bool odd, float others) {
  const Draws draws{word, word, word, word};
  std::array<float, kDraws> all{};
  all.fill(others);
  const std::size_t own = odd ? 5 : 2;
  all[own] = x;
  round_significands<kDropped>(all.data(), least, draws);
  return all[own];
}

}  // namespace

TEST_CASE("cuda-step rounds to f16 as often up as the part past the lower one says, subnormals included") {
  for (const float others : {1.0F, 0x1p-20F}) {  // all are normal, or not
    const auto round = [&](float x, std::uint32_t word, bool odd) {
      return rounded_among<13>(x, 0x1p-14F, word, odd, others);
    };
    for (const float x : {1.0003F, -1.0003F, 1000.3F, 65503.0F, 0x1.0FFp-14F, 0x1.8765p-16F, -0x1.8765p-20F,
                          0x1.4p-25F, -0x1p-26F, 0x1.FFFp-15F}) {
      const double ulp = ulp_at(std::abs(x), DType::f16);
      CAPTURE(x, ulp, others);
      const auto [low, high] = neighbours(x, ulp, through_f16);
      CHECK(std::abs(rounded_up<13>(x, low, high, round) - (x - low) / ulp * 0x1p13) <= 1);
    }
    for (const float x : {0.0F, 1.0F, -0x1p-24F, 0x1p-14F, 65504.0F})
      CHECK(rounded_up<13>(x, x, x, round) == 0x1p13);
    for (const std::uint32_t bits : {0x7FFFFFFFU, 0xFFFFFFFFU, 0x7FC00000U})
      CHECK(std::isnan(round(std::bit_cast<float>(bits), 0xFFFFFFFFU, true)));
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    CHECK(round(-kInfinity, 0xFFFFFFFFU, false) == -kInfinity);
  }
}

TEST_CASE("cuda-step rounds to e4m3 as often up as the part past the lower one says, subnormals included") {
  for (const float others : {1.0F, 0x1p-9F}) {
    const auto round = [&](float x, std::uint32_t word, bool odd) {
      return rounded_among<20>(x, 0x1p-6F, word, odd, others);
    };
    for (const float x : {1.03F, -17.7F, 430.0F, 0x1.1Fp-6F, -0x1.8765p-8F, 0x1.4p-10F, 0x1.FFFp-7F}) {
      const double ulp = ulp_at(std::abs(x), DType::e4m3);
      CAPTURE(x, ulp, others);
      const auto [low, high] = neighbours(x, ulp, through_e4m3);
      CHECK(std::abs(rounded_up<20>(x, low, high, round) - (x - low) / ulp * 0x1p20) <= 1);
    }
    for (const float x : {0.0F, 448.0F, -0x1p-9F, 0x1p-6F}) CHECK(rounded_up<20>(x, x, x, round) == 0x1p20);
  }
}
