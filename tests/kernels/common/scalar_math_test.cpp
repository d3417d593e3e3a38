#include "kernels/common/scalar_math.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>

#include "catch.h"

using namespace ssmbench;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// Formulas straight from the definition; 64 significand bits (11 more than double) leave them exact at f32's
/// scale.
long double exact_softplus(float x) {
  return x > 100 ? static_cast<long double>(x) : std::log1p(std::exp(static_cast<long double>(x)));
}
long double exact_silu(float x) {
  return x / (1 + std::exp(-static_cast<long double>(x)));
}

/// Distance between two values in units of the f32 spacing at `exact`, subnormals included.
long double ulps_apart(float got, long double exact) {
  const int exponent = exact == 0 ? -126 : std::max(std::ilogb(exact), -126);
  return std::fabs((got - exact) / std::ldexp(1.0L, exponent - 23));
}

/// Calls `check` on finite floats of both signs over the whole range: bit patterns with a step that is prime,
/// so that low bits vary, and all neighbours of the places where the code or its range changes.
template <class Check>
void for_floats(const Check& check) {
  constexpr std::uint32_t kFinite = 0x7F800000;
  for (std::uint32_t bits = 0; bits < kFinite; bits += 2053) {
    check(std::bit_cast<float>(bits));
    check(-std::bit_cast<float>(bits));
  }
  const auto largest = std::numeric_limits<float>::max();
  const auto tiny = std::numeric_limits<float>::denorm_min();
  for (const float centre : {0.0F, tiny, std::numeric_limits<float>::min(), 1.0F,
                             20.0F,           // softplus becomes the identity
                             87.336F, 88.0F,  // e^-x becomes subnormal
                             88.723F,         // e^x overflows
                             103.97F,         // e^-x becomes 0
                             108.6F,          // silu(-x) becomes 0
                             1e30F, largest}) {
    std::uint32_t bits = std::bit_cast<std::uint32_t>(centre);
    for (bits = bits < 2000 ? 0 : bits - 2000;
         bits < std::bit_cast<std::uint32_t>(centre) + 2000 && bits < kFinite; ++bits) {
      check(std::bit_cast<float>(bits));
      check(-std::bit_cast<float>(bits));
    }
  }
}

}  // namespace

TEST_CASE("softplus is accurate over all floats") {
  // expf and log1pf are each within 1 ulp. The condition number of log1p(w) is at most 1, so for x < 0, where
  // softplus(x) ≈ e^x, both errors add, and an ulp of e^x can weigh two of the result's where a binade
  // ends: 3.
  long double worst = 0;
  float where = 0;
  for_floats([&](float x) {
    const long double error = ulps_apart(softplus(x), exact_softplus(x));
    if (!(error <= worst)) worst = error, where = x;
  });
  INFO("x = " << where);
  CHECK(worst <= 3);
}

TEST_CASE("softplus at the ends of its range") {
  CHECK(softplus(kInfinity) == kInfinity);
  CHECK(softplus(-kInfinity) == 0.0F);
  CHECK(softplus(-1e30F) == 0.0F);
  CHECK(softplus(1e30F) == 1e30F);
  CHECK(softplus(0.0F) == std::log(2.0F));
  CHECK(std::isnan(softplus(kNaN)));
}

TEST_CASE("softplus does not jump where it becomes the identity") {
  float previous = softplus(19.99F);
  for (float x = 19.99F; x < 20.01F; x = std::nextafter(x, 21.0F)) {
    if (softplus(x) < previous) FAIL("falls at " << x);
    previous = softplus(x);
  }
  CHECK(softplus(20.0F) == 20.0F);
  CHECK(softplus(std::nextafter(20.0F, 21.0F)) == std::nextafter(20.0F, 21.0F));
}

TEST_CASE("silu is accurate over all floats") {
  // In units of 2^-24 relative, each at most an ulp: h twice, 2 each; 1 + h², whose h² ≤ 1 carries at most
  // half of 2·2 + 1, and its own 1; two products and the quotient, 1 each: 4 + 3.5 + 3 < 11. Subnormal
  // results add half of their own spacing, once.
  long double worst = 0;
  float where = 0;
  for_floats([&](float x) {
    const long double error = ulps_apart(silu(x), exact_silu(x));
    if (!(error <= worst)) worst = error, where = x;
  });
  INFO("x = " << where);
  CHECK(worst <= 11);
}

TEST_CASE("silu at the ends of its range") {
  CHECK(silu(kInfinity) == kInfinity);
  CHECK(silu(-1e30F) == 0.0F);
  CHECK(std::signbit(silu(-1e30F)));
  CHECK(silu(1e30F) == 1e30F);
  CHECK(silu(0.0F) == 0.0F);
  CHECK(std::signbit(silu(-0.0F)));
  CHECK(std::isnan(silu(-kInfinity)));
  CHECK(std::isnan(silu(kNaN)));
  // Past -88.7, where e^-x overflows, the result is a normal number still.
  CHECK(silu(-89.0F) < -1e-37F);
}

TEST_CASE("combine applies the first map, then the second") {
  const DecayValue first{0.5F, 3.0F};
  const DecayValue second{-4.0F, 7.0F};
  const DecayValue both = combine(first, second);
  for (const float h : {0.0F, 1.0F, -2.0F, 10.0F}) {
    const float stepwise = second.decay * (first.decay * h + first.value) + second.value;
    CHECK(both.decay * h + both.value == stepwise);
  }
  CHECK(combine(second, first).value != both.value);  // the order matters, and is this one
}

TEST_CASE("combine has the identity {1, 0} on both sides") {
  const DecayValue identity{1.0F, 0.0F};
  for (const DecayValue map :
       {DecayValue{0.3F, -1.7F}, DecayValue{0.0F, 1e30F}, DecayValue{1e-40F, 1e-40F}}) {
    CHECK(combine(identity, map).decay == map.decay);
    CHECK(combine(identity, map).value == map.value);
    CHECK(combine(map, identity).decay == map.decay);
    CHECK(combine(map, identity).value == map.value);
  }
}

TEST_CASE("combine is associative where arithmetic is exact") {
  // Small integers and powers of two: no product or sum of three needs more than 24 bits.
  const std::initializer_list<DecayValue> maps{{1, 0},     {0, 5},        {2, -3},
                                               {-0.5F, 4}, {0.25F, 1024}, {-3, 0.125F}};
  for (const auto a : maps)
    for (const auto b : maps)
      for (const auto c : maps) {
        const DecayValue left = combine(combine(a, b), c);
        const DecayValue right = combine(a, combine(b, c));
        CHECK(left.decay == right.decay);
        CHECK(left.value == right.value);
      }
}

TEST_CASE("a scan of maps, however it is split, is the recurrence") {
  // 24 steps with decays ½ and 1 and integer values: h stays within 24 bits, so every split must agree
  // exactly.
  constexpr int kSteps = 24;
  DecayValue maps[kSteps];
  float h = 3.0F;
  for (int t = 0; t < kSteps; ++t) {
    maps[t] = {t % 3 == 0 ? 0.5F : 1.0F, static_cast<float>(t * 7 % 11 - 5)};
    h = maps[t].decay * h + maps[t].value;
  }
  for (int split = 1; split < kSteps; ++split) {
    DecayValue before{1.0F, 3.0F};  // a prefix: its value is the state that enters, its decay is not used
    DecayValue after{1.0F, 0.0F};
    for (int t = 0; t < split; ++t) before = combine(before, maps[t]);
    for (int t = split; t < kSteps; ++t) after = combine(after, maps[t]);
    CHECK(combine(before, after).value == h);
  }
}
