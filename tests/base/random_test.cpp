#include "base/random.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "catch.h"

using namespace ssmbench;

namespace {

double normal_cdf(double x) {
  return 0.5 * std::erfc(-x / std::sqrt(2.0));
}

std::vector<double> normals(const Stream& stream, std::int64_t first, std::size_t count) {
  std::vector<double> values(count);
  stream.normals(first, values);
  return values;
}

}  // namespace

TEST_CASE("Philox4x32-10 gives Random123's published answers") {
  // tests/kat_vectors of Random123, the three philox4x32 10 lines: counter, key, answer.
  CHECK(philox4x32_10({0, 0, 0, 0}, {0, 0}) ==
        std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
        std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        std::array<std::uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("a stream's words are Philox of seed, name hash and index, past 32 bits too") {
  const std::int64_t seed = 0x123456789abcdef0;
  const std::int64_t block = 0x500000007;
  std::array<std::uint32_t, 4> words{};
  Stream(seed, "").words(4 * block, words);  // FNV-1a of nothing is its offset basis, cbf29ce4 84222325
  CHECK(words == philox4x32_10({0x00000007, 0x5, 0x84222325, 0xcbf29ce4}, {0x9abcdef0, 0x12345678}));
  Stream(seed, "a").words(4 * block, words);  // published FNV-1a test vector: "a" gives af63dc4c 8601ec8c
  CHECK(words == philox4x32_10({0x00000007, 0x5, 0x8601ec8c, 0xaf63dc4c}, {0x9abcdef0, 0x12345678}));
}

TEST_CASE("any part of a stream equals the same part of the whole") {
  const Stream stream(7, "u");
  // 1023 to 1029 straddle the block of 1024 that values are made in; starts 0 to 7 and odd counts cut Philox
  // calls.
  const auto whole = normals(stream, 0, 3000);
  for (const std::size_t first : {0, 1, 2, 3, 4, 5, 7, 1023})
    for (const std::size_t count : {1, 2, 3, 4, 5, 9, 1023, 1024, 1025, 1029})
      if (!std::ranges::equal(normals(stream, static_cast<std::int64_t>(first), count),
                              std::span(whole).subspan(first, count)))
        FAIL(first << " + " << count);
}

TEST_CASE("names and seeds select different streams") {
  std::map<double, int> seen;
  for (const auto* name : {"u", "delta", "z", "B", "C", "A", "D", "dt", "delta_bias", "initial_state"})
    for (const std::int64_t seed : {0LL, 1LL, -1LL, 1LL << 32}) ++seen[normals(Stream(seed, name), 0, 1)[0]];
  CHECK(seen.size() == 40);
}

TEST_CASE("normals are the quantiles of their uniforms") {
  const Stream stream(3, "q");
  std::vector<double> u(200'000), x(200'000);
  stream.uniforms(0, u);
  stream.normals(0, x);
  double worst = 0;
  for (std::size_t i = 0; i < u.size(); ++i) {
    // Compared in the nearer tail, where the probability has the relative accuracy that PPND7 promises for x:
    // a relative error e of x is one of e·x·φ(x)/Q(x) < e·(x² + 1) of the tail probability Q.
    const double tail = std::min(u[i], 1 - u[i]);
    const double got = normal_cdf(-std::fabs(x[i]));
    worst = std::max(worst, std::fabs(got / tail - 1) / (x[i] * x[i] + 1));
    if ((x[i] < 0) != (u[i] < 0.5)) FAIL("sign at " << i);
  }
  CHECK(worst < 3e-7);
}

TEST_CASE("a million normals have the moments and tails of N(0, 1)") {
  constexpr std::size_t kCount = 1'000'000;
  const auto x = normals(Stream(2024, "moments"), 0, kCount);
  double sum = 0, squares = 0, fourth = 0;
  std::map<double, double> beyond{{1, 0}, {2, 0}, {3, 0}, {4, 0}};
  double products = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    sum += x[i];
    squares += x[i] * x[i];
    fourth += x[i] * x[i] * x[i] * x[i];
    if (i > 0) products += x[i] * x[i - 1];
    for (auto& [limit, count] : beyond)
      if (x[i] > limit) ++count;
  }
  // Each statistic lies within 4.5 standard errors of its mean with probability 1 - 7e-6; the seed is fixed.
  // Variances of x, x², x⁴ and of a product of two: 1, 2, 96, 1.
  const double n = kCount;
  CHECK(std::fabs(sum / n) < 4.5 / std::sqrt(n));
  CHECK(std::fabs(squares / n - 1) < 4.5 * std::sqrt(2 / n));
  CHECK(std::fabs(fourth / n - 3) < 4.5 * std::sqrt(96 / n));
  CHECK(std::fabs(products / n) < 4.5 / std::sqrt(n));
  for (const auto& [limit, count] : beyond) {
    const double expected = n * normal_cdf(-limit);
    CHECK(std::fabs(count - expected) < 4.5 * std::sqrt(expected));
  }
}
