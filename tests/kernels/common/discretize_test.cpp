// Ā, c and c' against the formulas of model/method.h in long double.

#include "kernels/common/discretize.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <type_traits>
#include <vector>

#include "catch.h"
#include "kernels/common/exact_methods.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

constexpr float kSmallest = std::numeric_limits<float>::min();
constexpr long double kUnit = 0x1p-24L;

/// Error in roundoffs of f32, relative to `scale`; 0 where the exact value is out of f32's range and the
/// result says so, and under its smallest normal number.
template <class Value>
long double roundoffs(Value got, Exact expected, long double scale) {
  if (std::abs(expected) > 0.99L * std::numeric_limits<float>::max())
    return std::isfinite(std::abs(exact(got))) ? std::abs(exact(got) - expected) / scale / kUnit : 0;
  const long double error = std::abs(exact(got) - expected);
  if (std::isnan(error)) return std::numeric_limits<long double>::infinity();
  return error <= kSmallest ? 0 : error / scale / kUnit;
}
template <class Value>
long double roundoffs(Value got, Exact expected) {
  return roundoffs(got, expected, std::abs(expected));
}

/// Magnitudes from the smallest normal number to 700, dense around the places where the code changes path.
std::vector<float> magnitudes() {
  std::vector<float> all;
  for (float x = kSmallest; x < 1e-5F; x *= 3.7F) all.push_back(x);
  for (float x = 1e-5F; x < 700.0F; x *= 1.013F) all.push_back(x);
  for (const float centre : {1e-4F,                          // two terms become a quotient
                             1.0F,                           // the series of φ2 ends
                             80.0F,                          // e^z becomes a square
                             88.72F, 93.2F, 97.8F, 700.0F})  // e^z, φ1, φ2 overflow
    for (const float step : {-1e-6F, 0.0F, 1e-6F}) all.push_back(centre * (1 + step));
  return all;
}

std::vector<float> real_points() {
  std::vector<float> all{0.0F, std::numeric_limits<float>::denorm_min()};
  for (const float x : magnitudes()) {
    all.push_back(x);
    all.push_back(-x);
  }
  return all;
}

/// All magnitudes in directions that include the axes and their neighbourhood, and the zeros 2πik of e^z − 1.
std::vector<Complex> complex_points() {
  std::vector<Complex> all{{0, 0}};
  constexpr int kDirections = 26;
  for (const float r : magnitudes()) {
    for (int i = 0; i < kDirections; ++i) {
      const float angle = 2 * std::numbers::pi_v<float> * static_cast<float>(i) / kDirections;
      all.push_back({r * std::cos(angle), r * std::sin(angle)});
    }
    for (const float sign : {-1.0F, 1.0F}) {
      all.push_back({sign * r, 0});
      all.push_back({0, sign * r});
      all.push_back({-r, sign * 1e-6F * r});
      all.push_back({sign * 1e-6F * r, r});
    }
  }
  for (int k = 1; k < 20; ++k)
    for (const float x : {-1e-3F, -1e-6F, 0.0F, 1e-30F, 1e-6F})
      all.push_back({x, 2 * std::numbers::pi_v<float> * static_cast<float>(k)});
  return all;
}

/// Largest error over the points, and where it is.
template <class Value, class Error>
void check_worst(const std::vector<Value>& points, long double bound, const Error& error) {
  long double worst = 0;
  Exact where = 0;
  for (const Value z : points) {
    const long double e = error(z);
    if (e > worst) {
      worst = e;
      where = exact(z);
    }
  }
  INFO("worst at " << static_cast<double>(where.real()) << " + " << static_cast<double>(where.imag()) << "i");
  CHECK(static_cast<double>(worst) <= static_cast<double>(bound));
}

}  // namespace

// The comments add up the roundings of each formula; the bounds are half to two thirds of the sums, since
// roundings do not all have one sign.

TEST_CASE("complex exponentials keep their accuracy far from 0 and have none to keep past 2^24") {
  std::vector<Complex> points;
  for (float y = 600.0F; y < 0x1p24F; y *= 1.0003F) points.push_back({-0.5F, y});
  // Sine and cosine have 2 each, their product 1, e^x 2 and the product with it 1. The rounding of y alone
  // is worth |y| roundoffs.
  check_worst(points, 1, [](Complex z) {
    return roundoffs(exponentials(z).power, exact_exp(exact(z))) / (8 + std::abs(z.im) / 1000);
  });
  CHECK(square_magnitude(exponentials(Complex{0.0F, 3e30F}).power) < 1.01F);
  CHECK(std::isnan(exponentials(Complex{0.0F, std::numeric_limits<float>::infinity()}).power.re));
}

TEST_CASE(
    "complex decays are accurate but for the roundings of A's multiples, and never grow by themselves") {
  std::vector<Complex> points;
  for (float y = 1e-30F; y < 0x1p24F; y *= 1.003F)
    for (const float x : {-20.0F, -1.0F, -1e-3F, 0.0F}) points.push_back({x, y});
  // The polynomials, their roundings and that of the square in the cosine; e^x 2, and the products with it.
  check_worst(points, 5, [](Complex z) {
    return roundoffs(decay(1.0F, decay_rate(z)), exact_exp(exact(z))) - std::abs(Exact(2 * z.re, z.im));
  });
  for (const float angle : {1e7F, 3e30F})
    for (const float delta : {1.0F, 0.3F, 1e-7F})
      CHECK(square_magnitude(decay(delta, decay_rate(Complex{0.0F, angle}))) < 1.01F);
  CHECK(std::isnan(decay(1.0F, decay_rate(Complex{0.0F, std::numeric_limits<float>::infinity()})).re));
  CHECK(std::isnan(decay(1.0F, decay_rate(Complex{std::nanf(""), 0.0F})).re));
  CHECK(std::isnan(decay(1.0F, decay_rate(Complex{0.0F, std::nanf("")})).re));
  const Complex still = decay(0.0F, decay_rate(Complex{-2.0F, 3.0F}));
  CHECK((still.re == 1.0F && still.im == 0.0F));
}

TEST_CASE("e^z and e^z - 1 are accurate relative to each, up to where n stays at 127") {
  std::vector<float> points;
  for (const float z : real_points())
    if (z > -87.0F && z < 88.3F) points.push_back(z);
  // The polynomial and the roundings of r, of r² times it and of their sum; then the result's own.
  check_worst(points, 2, [](float z) { return roundoffs(exponentials(z).power, exact_exp(exact(z))); });
  check_worst(points, 3, [](float z) {
    return roundoffs(exponentials(z).minus_1, std::expm1(static_cast<long double>(z)));
  });
  CHECK(std::abs(exponentials(88.7F).power / std::exp(88.7F) - 1) < 1e-4F);
  CHECK(std::isinf(exponentials(700.0F).power));
  CHECK(exponentials(-700.0F).power == 0.0F);
  CHECK(exponentials(-700.0F).minus_1 == -1.0F);
}

TEST_CASE("phi1 is accurate to a few roundoffs at every z") {
  // Real: e^z − 1 (libm: 2), 1/z and the product (1 each); past 80, two exponentials' worth (2 · 2) and three
  // more.
  check_worst(real_points(), 5, [](float z) { return roundoffs(phi1(z), exact_phi1(exact(z))); });
  // Complex: the real part of e^z − 1 is a difference of terms up to √2 larger than the result, each of 4;
  // the reciprocal has 6, the product 3. A square past 80 doubles the exponential's 7.
  check_worst(complex_points(), 12, [](Complex z) { return roundoffs(phi1(z), exact_phi1(exact(z))); });
  CHECK(phi1(0.0F) == 1.0F);
  CHECK(phi1(Complex{}).re == 1.0F);
}

TEST_CASE("phi2 is accurate to a few roundoffs at every z") {
  // Real: (e^z − 1)/z − 1 loses at most 1.72/0.72 (at z = 1) of e^z − 1's 2 and 1/z's 1, then rounds once,
  // and 1/z adds 2.
  check_worst(real_points(), 7, [](float z) { return roundoffs(phi2(z), exact_phi2(exact(z))); });
  // Complex: relative to the larger term, as φ2 says; the reciprocal counts twice.
  check_worst(complex_points(), 16, [](Complex z) {
    const Exact w = exact(z);
    const long double terms = std::abs(w) < 1 ? 0 : std::max(std::abs(exact_phi1(w)), 1.0L) / std::abs(w);
    return roundoffs(phi2(z), exact_phi2(w), std::max(terms, std::abs(exact_phi2(w))));
  });
  CHECK(phi2(0.0F) == 0.5F);
  CHECK(phi2(Complex{}).re == 0.5F);
}

TEST_CASE("phi1 - phi2 is accurate to a few roundoffs at every z") {
  // Real: e^z·(1 − 1/z) + 1/z loses at most 0.74/0.26 (at z = −1) of the product's 4; two roundings, and 1/z
  // adds 2.
  check_worst(real_points(), 10,
              [](float z) { return roundoffs(phi1_minus_phi2(z), exact_difference(exact(z))); });
  check_worst(complex_points(), 16, [](Complex z) {
    const Exact w = exact(z);
    const long double terms =
        std::abs(w) < 1 ? 0 : std::max(std::abs((w - 1.0L) * exact_exp(w)), 1.0L) / std::norm(w);
    return roundoffs(phi1_minus_phi2(z), exact_difference(w), std::max(terms, std::abs(exact_difference(w))));
  });
  CHECK(phi1_minus_phi2(0.0F) == 0.5F);
  CHECK(phi1_minus_phi2(Complex{}).re == 0.5F);
}

namespace {

/// What decay() of complex A is off by since it scales A: a roundoff of either part, and one of the product
/// of the real one.
long double scaled_error(float /*delta*/, float /*A*/) {
  return 0;
}
long double scaled_error(float delta, Complex A) {
  return std::abs(Exact(2 * A.re, A.im)) * static_cast<long double>(delta);
}

/// Errors of decay, input and previous at Δ and A, each in roundoffs. Where Ā is beyond f32 no state is
/// finite, whatever c.
template <class Value>
long double step_error(MethodId method, float delta, Value A) {
  const ExactStep expected = exact_step(method, delta, exact(A));
  if (std::abs(expected.decay) > std::numeric_limits<float>::max()) return 0;
  return with_family(method, [&]<Family family>(std::integral_constant<Family, family>) {
    const auto got = Step<family>(method_parameters(method), delta, 1.0F)(StateA(A));
    const long double scale = std::max(expected.input_scale, std::abs(expected.input));
    const bool scales = family != Family::foh && family != Family::bilinear;
    const long double scaled = scales ? scaled_error(delta, A) : 0;
    return std::max({roundoffs(got.decay, expected.decay) - scaled,
                     roundoffs(got.input, expected.input, scale),
                     two_samples(family) ? roundoffs(got.previous, expected.previous) - scaled : 0.0L});
  });
}

/// Steps are powers of two, so that Δ·A is exact: what is left is the error of the rules themselves.
template <class Value>
void check_steps(const Method& method, const std::vector<Value>& points, long double bound) {
  INFO(method.name);
  for (const float delta : {0x1p-20F, 0x1p-7F, 1.0F, 4.0F})
    check_worst(points, bound, [&](Value A) { return step_error(method.id, delta, A); });
}

}  // namespace

TEST_CASE("every method's step is accurate, real") {
  // A from −100 on keeps z at most 400; positive A too.
  // Under 1e-38 1/A overflows.
  std::vector<float> points{0.0F, -1e-30F, -1e-38F, 1e-39F, -std::numeric_limits<float>::denorm_min()};
  for (float a = 1e-12F; a < 100.0F; a *= 1.31F) {
    points.push_back(-a);
    points.push_back(a);
  }
  // φ1 − φ2, the worst, has 10; Taylor's sums have at most 12 operations and 3 of coefficients.
  for (const auto& method : methods()) check_steps(method, points, 10);
}

TEST_CASE("every method's step is accurate, complex") {
  // The directions leave out the neighbourhoods of the zeros of φ2 and φ1 − φ2, whose own tests cover them.
  std::vector<Complex> points{{0, 0}, {-1e-30F, 1e-32F}, {-1e-39F, 1e-38F}, {0, 1e-42F}};
  for (float r = 1e-12F; r < 60.0F; r *= 1.31F)
    for (const float angle : {3.14159265F, 3.0F, 2.0F, -2.2F, -1.5707964F, 1.5707964F})
      points.push_back({r * std::cos(angle), r * std::sin(angle)});
  for (const auto& method : methods()) check_steps(method, points, 16);
}

TEST_CASE("a step of size 0 changes nothing, and A = 0 integrates") {
  for (const auto& method : methods()) {
    INFO(method.name);
    with_family(method.id, [&]<Family family>(std::integral_constant<Family, family>) {
      const auto still = Step<family>(method_parameters(method.id), 0.0F, 3.0F)(StateA(-2.0F));
      CHECK(still.decay == 1.0F);
      CHECK(still.input == 0.0F);
      CHECK(still.previous == 0.0F);
      const auto integral = Step<family>(method_parameters(method.id), 0.5F, 3.0F)(StateA(0.0F));
      CHECK(integral.decay == 1.0F);
      // Both samples' weights make Δ where the rule is consistent.
      if (!method.name.starts_with("vim_")) CHECK(integral.input / 3.0F + integral.previous == 0.5F);
    });
  }
}

TEST_CASE("bilinear rules have their poles where they should, and IEEE's result there") {
  const auto at = [](MethodId method, auto A) {
    return Step<Family::bilinear>(method_parameters(method), 1.0F, 1.0F)(StateA(A));
  };
  CHECK(std::isinf(at(MethodId::bilinear, 2.0F).decay));
  CHECK(std::isinf(at(MethodId::bilinear, 2.0F).input));
  CHECK(std::isinf(at(MethodId::bilinear_flipped, -2.0F).decay));
  CHECK(at(MethodId::bilinear, -2.0F).decay == 0.0F);
  const auto complex = at(MethodId::bilinear, Complex{2.0F, 0.0F}).decay;
  CHECK(!std::isfinite(std::hypot(complex.re, complex.im)));
}
