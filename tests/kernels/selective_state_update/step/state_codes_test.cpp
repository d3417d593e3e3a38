// How cuda-step reads, rounds and writes quantized states, and its random numbers.

#include "kernels/selective_state_update/step/state_codes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <bitset>
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
    std::uint32_t words[4]{i, 2 * i + 1, i ^ 77U, 5};
    const auto expected = philox4x32_10({words[0], words[1], words[2], words[3]}, {i + 3, ~i});
    philox4x32<10>(words, i + 3, ~i);
    CHECK(std::array<std::uint32_t, 4>{words[0], words[1], words[2], words[3]} == expected);
  }
}

TEST_CASE("cuda-step draws other numbers for other rows, vectors, seeds and tensors") {
  std::set<std::uint32_t> words;
  const std::int64_t far = std::int64_t{1} << 40;
  for (const std::int64_t seed : {std::int64_t{0}, std::int64_t{1}, std::int64_t{1} << 32})
    for (const std::uint32_t stream : {0U, 1U})
      for (const std::int64_t row : {std::int64_t{0}, std::int64_t{2}, far, far + 2})
        for (const std::uint32_t vector : {0U, 1U, 31U}) {
          Draws draws;
          draw(draws, seed, stream, row, vector);
          words.insert(draws, draws + 4);
        }
  CHECK(words.size() == std::size_t{3 * 2 * 4 * 3 * 4});
  CHECK(random_bits<13>(0xABCD1234U, false) == 0x1234U);
  CHECK(random_bits<13>(0xABCD1234U, true) == 0xABCD1234U >> 19U);
  CHECK(random_bits<20>(0xABCD1234U, false) == 0xD1234U);
  CHECK(random_bits<20>(0xABCD1234U, true) == 0xABCD1U);
}

namespace {

using Bits128 = std::bitset<128>;

/// How many of these sums modulo 2 are no sums of others.
std::size_t rank_of(std::vector<Bits128> sums) {
  std::size_t rank = 0;
  for (std::size_t bit = 0; bit < 128; ++bit) {
    const auto with_bit = std::find_if(sums.begin() + static_cast<std::ptrdiff_t>(rank), sums.end(),
                                       [&](const Bits128& sum) { return sum[bit]; });
    if (with_bit == sums.end()) continue;
    const Bits128 pivot = *with_bit;
    std::iter_swap(with_bit, sums.begin() + static_cast<std::ptrdiff_t>(rank));
    for (std::size_t i = ++rank; i < sums.size(); ++i)
      if (sums[i][bit]) sums[i] ^= pivot;
  }
  return rank;
}

}  // namespace

TEST_CASE("cuda-step's random numbers of 16 bits are uniform, and independent of one another in pairs") {
  // Each bit of a number is a sum modulo 2 of some bits of a call of Philox: number i of 32, bit k of 16.
  std::vector<std::vector<Bits128>> numbers(32, std::vector<Bits128>(16));
  for (unsigned bit = 0; bit < 128; ++bit) {
    Draws words{0, 0, 0, 0};
    words[bit / 32] = 1U << bit % 32;
    for (int set = 0; set < 4; ++set) {
      Draws draws;
      set_of_draws(draws, words, set);
      for (unsigned i = 0; i < kDraws; ++i)
        for (unsigned k = 0; k < 16; ++k)
          numbers[static_cast<unsigned>(set) * kDraws + i][k][bit] =
              (random_bits<16>(draws[i / 2], i % 2 != 0) >> k & 1U) != 0;
    }
  }
  for (std::size_t i = 0; i < numbers.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      std::vector<Bits128> both = numbers[i];
      both.insert(both.end(), numbers[j].begin(), numbers[j].end());
      CAPTURE(i, j);
      REQUIRE(rank_of(both) == 32);
    }
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

TEST_CASE("cuda-step rounds the smallest and the largest rows stochastically to a code next to it") {
  for (int exponent = -149; exponent < 128; ++exponent)
    for (const float part : {1.0F, -1.0F, 0.34567F, -0.34567F, 1e-4F, -1e-4F, 0.0F}) {
      const float largest = std::ldexp(1.2345F, exponent);
      const float factor = factor_of_row(largest, 32767);
      const std::array<float, 4> from{part * largest, part * largest, part * largest, part * largest};
      const float code = from[0] * factor;
      const float byte = from[0] * factor_of_row(largest, 127);
      CAPTURE(largest, part);
      for (const std::uint32_t word : {0U, 0x7FFF8000U, 0xFFFFFFFFU}) {
        const std::array<std::uint32_t, 2> draws{word, word};
        std::array<float, 4> read{};
        decode_i16(encode_i16(from.data(), factor, word), read.data());
        for (const int i : {0, 1}) REQUIRE((read[i] == std::floor(code) || read[i] == std::ceil(code)));
        decode_i8(encode_i8(from.data(), factor_of_row(largest, 127), draws.data()), read.data());
        for (const float is : read) REQUIRE((is == std::floor(byte) || is == std::ceil(byte)));
      }
    }
}

namespace {

/// x among eight numbers, of which the others are `others`.
float rounded_to_f16(float x, std::uint32_t word, bool odd, float others) {
  const Draws draws{word, word, word, word};
  std::array<float, kDraws> all{};
  all.fill(others);
  const std::size_t own = odd ? 5 : 2;
  all[own] = x;
  std::array<std::uint32_t, kDraws / 2> halves{};
  round_to_halves(all.data(), draws, halves.data());
  return f16_to_float(static_cast<std::uint16_t>(halves[own / 2] >> (odd ? 16U : 0U)));
}

/// x among four numbers, at places 0 and 1, or 2 and 3.
float rounded_to_e4m3(float x, std::uint32_t word, bool odd, unsigned pair) {
  std::array<float, 4> all{448.0F, -448.0F, 0x1p-9F, -0x1p-9F};
  const unsigned own = 2 * pair + (odd ? 1 : 0);
  all[own] = x;
  const std::array<std::uint32_t, 2> draws{word, word};
  return e4m3_to_float(static_cast<std::uint8_t>(encode_e4m3(all.data(), 1, draws.data()) >> 8U * own));
}

}  // namespace

TEST_CASE("cuda-step rounds to f16 as often up as the part past the lower one says, subnormals included") {
  for (const float others : {1.0F, 0x1p-20F}) {  // all are normal, or not
    const auto round = [&](float x, std::uint32_t word, bool odd) {
      return rounded_to_f16(x, word, odd, others);
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
    CHECK(round(70000.0F, 0, false) == kInfinity);
  }
}

TEST_CASE("cuda-step rounds to e4m3 as often up as the part past the lower one says, subnormals included") {
  for (const unsigned pair : {0U, 1U}) {
    const auto round = [&](float x, std::uint32_t word, bool odd) {
      return rounded_to_e4m3(x, word, odd, pair);
    };
    for (const float x : {1.03F, -17.7F, 430.0F, 0x1.1Fp-6F, -0x1.8765p-8F, 0x1.4p-10F, 0x1.FFFp-7F}) {
      const double ulp = ulp_at(std::abs(x), DType::e4m3);
      CAPTURE(x, ulp, pair);
      const auto [low, high] = neighbours(x, ulp, through_e4m3);
      CHECK(std::abs(rounded_up<20>(x, low, high, round) - (x - low) / ulp * 0x1p20) <= 1);
    }
    for (const float x : {0.0F, 448.0F, -448.0F, -0x1p-9F, 0x1p-6F})
      CHECK(rounded_up<20>(x, x, x, round) == 0x1p20);
  }
}
