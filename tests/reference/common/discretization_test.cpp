// φ1, φ2 and the methods in fp64 against long double, where long double has digits to spare, and against what
// the definitions give at special points.

#include "reference/common/discretization.h"

#include <cmath>
#include <complex>
#include <limits>
#include <vector>

#include "catch.h"

using namespace ssmbench;

namespace {

using Complex = std::complex<double>;
using LongComplex = std::complex<long double>;

constexpr double kUlp = std::numeric_limits<double>::epsilon();

/// φk(z) = Σ_j z^j/(j+k)!, k = 0, 1, 2, by the scaling φ_k(2z) in terms of φ_j(z) where the series would be
/// long: φ0(2z) = φ0², φ1(2z) = (φ0 + 1)·φ1/2, φ2(2z) = (φ1² + 2·φ2)/4 (Higham 2008, eq. 10.36), all in long
/// double.
struct Phi {
  LongComplex phi0, phi1, phi2;
};

Phi phi_by_doubling(LongComplex z) {
  int halvings = 0;
  while (std::abs(z) > 0.5L) {
    z /= 2;
    ++halvings;
  }
  LongComplex sum = 0;
  for (int j = 25; j >= 1; --j) sum = (sum + 1.0L) * z / static_cast<long double>(j + 2);
  Phi phi{{}, {}, (sum + 1.0L) / 2.0L};
  phi.phi1 = 1.0L + z * phi.phi2;
  phi.phi0 = 1.0L + z * phi.phi1;
  for (; halvings > 0; --halvings)
    phi = {phi.phi0 * phi.phi0, (phi.phi0 + 1.0L) * phi.phi1 / 2.0L,
           (phi.phi1 * phi.phi1 + 2.0L * phi.phi2) / 4.0L};
  return phi;
}

/// Magnitudes from 1e-300 to 700.
std::vector<double> magnitudes() {
  std::vector<double> all;
  for (double size = 1e-300; size < 1e-4; size *= 1e7) all.push_back(size);
  for (double size = 1e-4; size < 700; size *= 1.11) all.push_back(size);
  all.push_back(0.999999);
  all.push_back(1.000001);  // around the switch from series to closed form
  all.push_back(700);
  return all;
}

double relative(Complex got, LongComplex expected) {
  return static_cast<double>(std::abs(LongComplex(got) - expected) / std::abs(expected));
}

}  // namespace

TEST_CASE("phi functions are accurate for every real z") {
  double worst = 0;
  for (const double size : magnitudes()) {
    for (const double z : {size, -size}) {
      const long double x = z;
      // The closed forms lose |z| of 64 bits near zero; there the doubled series has them all, but it loses
      // digits to cancellation for very negative z, where the closed forms are good.
      const bool closed = std::abs(z) > 2;
      const Phi series = phi_by_doubling({x, 0});
      const long double one = closed ? std::expm1(x) / x : series.phi1.real();
      const long double two = closed ? (std::expm1(x) / x - 1) / x : series.phi2.real();
      const long double difference =
          closed ? (1 + std::exp(x) * (x - 1)) / x / x : (series.phi1 - series.phi2).real();
      INFO(z);
      worst = std::max(
          {worst, relative(phi1(z), one), relative(phi2(z), two), relative(phi1_minus_phi2(z), difference)});
      CHECK(relative(phi1(z), one) < 4 * kUlp);
      CHECK(relative(phi2(z), two) < 4 * kUlp);
      CHECK(relative(phi1_minus_phi2(z), difference) < 6 * kUlp);
    }
  }
  CHECK(worst > 0);
}

TEST_CASE("phi functions are accurate for every complex z, relative to their modulus") {
  for (const double size : magnitudes()) {
    for (int degrees = 0; degrees < 360; degrees += 15) {
      const double angle = degrees * 3.14159265358979323846 / 180;
      const Complex z = std::polar(size, angle);
      const LongComplex x(z);
      const bool closed = size > 2;
      const Phi series = phi_by_doubling(x);
      const LongComplex exponential = std::exp(x);
      const LongComplex one = closed ? (exponential - 1.0L) / x : series.phi1;
      const LongComplex two = closed ? (one - 1.0L) / x : series.phi2;
      const LongComplex difference =
          closed ? (1.0L + exponential * (x - 1.0L)) / x / x : series.phi1 - series.phi2;
      INFO(z);
      // Rounding the argument of sine and cosine costs nothing (it is exact); 8 ulp are some ten operations.
      CHECK(relative(phi1(z), one) < 8 * kUlp);
      CHECK(relative(phi2(z), two) < 8 * kUlp);
      CHECK(relative(phi1_minus_phi2(z), difference) < 16 * kUlp);
    }
  }
}

TEST_CASE("at z = 0 every method is its limit") {
  for (const auto& method : methods()) {
    INFO(method.name);
    for (const double delta : {0.0, 0.5}) {
      const auto real = discretize(method.id, delta, 0.0);
      const auto complex = discretize(method.id, delta, Complex(0));
      CHECK(real.decay == 1);
      CHECK(complex.input == real.input);
      CHECK(std::isfinite(real.input));
      if (method.two_samples()) {
        CHECK(real.input == delta / 2);
        CHECK(real.previous_input == delta / 2);
      } else {
        CHECK(real.previous_input == 0);
      }
    }
  }
  CHECK(discretize(MethodId::foh, 0.5, 0.0).input == 0.5);
  CHECK(discretize(MethodId::vim_poly, 0.5, 0.0).input == 0.5 + 0.25 * 0.25);
  CHECK(std::abs(discretize(MethodId::vim_highorder, 0.5, 0.0).input - (0.5 + 0.125 + 0.125 / 12)) < 1e-16);
}

TEST_CASE("Taylor methods approach foh at their order") {
  const std::vector<std::pair<MethodId, int>> orders{
      {MethodId::highorder, 2}, {MethodId::poly, 3}, {MethodId::rk4, 4}};
  for (const auto& [method, order] : orders) {
    const auto error = [method = method](double delta) {
      return std::abs(discretize(method, delta, -1.0).input / discretize(MethodId::foh, delta, -1.0).input -
                      1);
    };
    const double measured = std::log2(error(0.02) / error(0.01));
    CHECK(std::abs(measured - order) < 0.05);
  }
}

TEST_CASE("with real A the complex form is the real one") {
  for (const auto& method : methods()) {
    INFO(method.name);
    for (const double A : {-0.01, -1.0, -30.0}) {
      const auto real = discretize(method.id, 0.3, A);
      const auto complex = discretize(method.id, 0.3, Complex(A));
      CHECK(std::abs(complex.decay - real.decay) <= 4 * kUlp * std::abs(real.decay));
      CHECK(std::abs(complex.input - real.input) <= 16 * kUlp * std::abs(real.input));
      CHECK(std::abs(complex.previous_input - real.previous_input) <=
            16 * kUlp * std::abs(real.previous_input));
    }
  }
}

TEST_CASE("the pole of a bilinear rule is what IEEE arithmetic says") {
  const auto pole = discretize(MethodId::bilinear_flipped, 1.0, -2.0);
  CHECK(std::isinf(pole.decay));
  CHECK(std::isinf(pole.input));
}
