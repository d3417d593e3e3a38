// Coefficients and their derivatives against the reference's, which are exact to a few ulp of fp64 and come
// with the error that an implementation may have.

#include "kernels/common/discretize_derivative.h"

#include <cmath>
#include <complex>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "catch.h"
#include "kernels/common/exact_methods.h"
#include "reference/common/discretization_derivative.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

constexpr double kUnit = 0x1p-24;
constexpr double kSmallest = std::numeric_limits<float>::min();
constexpr double kLargest = 0.99 * std::numeric_limits<float>::max();

double widened(float z) {
  return z;
}
std::complex<double> widened(Complex z) {
  return {z.re, z.im};
}

/// Magnitudes from 1e-30 to 80, and around the places where the code or libm changes path.
std::vector<float> magnitudes() {
  std::vector<float> all{2.9999998F, 3.0F, 3.0000002F, 1.0F, 80.0F};
  for (float x = 1e-30F; x < 1e-5F; x *= 31.0F) all.push_back(x);
  for (float x = 1e-5F; x < 80.0F; x *= 1.017F) all.push_back(x);
  return all;
}
std::vector<float> real_points() {
  std::vector<float> all{0.0F};
  for (const float x : magnitudes()) {
    all.push_back(x);
    all.push_back(-x);
  }
  return all;
}
/// Directions that include the axes, and the zeros 2πik of e^z − 1.
std::vector<Complex> complex_points() {
  std::vector<Complex> all{{0, 0}};
  for (const float r : magnitudes()) {
    for (int i = 0; i < 22; ++i) {
      const float angle = 0.2855993F * static_cast<float>(i);
      all.push_back({r * std::cos(angle), r * std::sin(angle)});
    }
    for (const float sign : {-1.0F, 1.0F}) {
      all.push_back({sign * r, 0});
      all.push_back({0, sign * r});
      all.push_back({-r, sign * 1e-6F * r});
    }
  }
  for (int k = 1; k < 12; ++k) all.push_back({-1e-6F, 6.2831853F * static_cast<float>(k)});
  return all;
}

/// The largest share of its allowed error that something takes, and where.
struct Worst {
  double share = 0;
  std::string where;

  /// Beyond f32's range nothing is asked, nor at a pole, where rounding z leaves no digit.
  template <class Got, class T>
  void add(const char* name, Got got, const Rounded<T>& expected, std::complex<double> z) {
    if (!(std::abs(expected.value) <= kLargest && expected.error * kUnit < 0.1 * expected.magnitude)) return;
    const double error = std::abs(std::complex<double>(widened(got)) - std::complex<double>(expected.value));
    const double taken = error / (expected.error * kUnit + kSmallest);
    if (taken <= share) return;
    share = taken;
    where =
        std::string(name) + " at z = " + std::to_string(z.real()) + " + " + std::to_string(z.imag()) + "i";
  }
  template <class Got, class T>
  void add(const char* name, const StepCoefficient<Got>& got, const Coefficient<T>& expected,
           std::complex<double> z) {
    add(name, got.value, expected.value, z);
    add((std::string(name) + " by delta").c_str(), got.by_delta, expected.by_delta, z);
    add((std::string(name) + " by A").c_str(), got.by_A, expected.by_A, z);
  }
};

template <class Value>
void check_method(const Method& method, const std::vector<Value>& points, double bound) {
  INFO(method.name);
  Worst worst;
  with_family(method.id, [&]<Family family>(std::integral_constant<Family, family>) {
    for (const float delta : {1.0F, 0x1p-7F, 0.37F, 5.3F}) {
      const StepDerivative<family> step(method_parameters(method.id), delta);
      for (const Value z : points) {
        const Value A = (1 / delta) * z;
        const auto got = step(A);
        const auto expected = discretize(method.id, exactly<double>(delta), exactly(widened(A)));
        worst.add("decay", got.decay, expected.decay, widened(z));
        worst.add("input", got.input, expected.input, widened(z));
        worst.add("previous", got.previous, expected.previous_input, widened(z));
      }
    }
  });
  INFO(worst.where);
  CHECK(worst.share <= bound);
}

}  // namespace

TEST_CASE("every method's derivatives are accurate, real") {
  for (const auto& method : methods()) check_method(method, real_points(), 1);
}

TEST_CASE("every method's derivatives are accurate, complex") {
  // Complex exponentials may take more than the 2 roundoffs that the reference counts: tolerances have a
  // factor of 2 for that (verify/tolerance.h).
  for (const auto& method : methods()) check_method(method, complex_points(), 2);
}

TEST_CASE("the derivatives are those of the definition") {
  // Central differences of the definition's formulas in long double: third-order term and rounding under
  // 1e-8.
  constexpr long double kStep = 1e-5L;
  for (const auto& method : methods()) {
    INFO(method.name);
    const auto check = [&](Complex A) {
      constexpr float kDelta = 0.7F;
      const auto differences = [&](auto member, long double d, Exact a) {
        const ExactStep above = exact_step(method.id, kDelta + d * kStep, exact(A) + a * kStep);
        const ExactStep below = exact_step(method.id, kDelta - d * kStep, exact(A) - a * kStep);
        return (above.*member - below.*member) / (2 * kStep);
      };
      const auto close = [&](auto got, auto member) {
        const Exact by_delta = differences(member, 1, 0);
        const Exact by_A = differences(member, 0, 1);
        CHECK(std::abs(exact(got.by_delta) - by_delta) <= 3e-6L * (1 + std::abs(by_delta)));
        CHECK(std::abs(exact(got.by_A) - by_A) <= 3e-6L * (1 + std::abs(by_A)));
      };
      with_family(method.id, [&]<Family family>(std::integral_constant<Family, family>) {
        const auto step = StepDerivative<family>(method_parameters(method.id), kDelta)(A);
        close(step.decay, &ExactStep::decay);
        close(step.input, &ExactStep::input);
        close(step.previous, &ExactStep::previous);
      });
    };
    for (const Complex A : {Complex{-0.3F, 0}, Complex{-1.1F, 0.8F}, Complex{-4.3F, 2.2F}, Complex{1.1F, -9}})
      check(A);
  }
}

TEST_CASE("derivatives at A = 0 and at a step of size 0") {
  for (const auto& method : methods()) {
    INFO(method.name);
    with_family(method.id, [&]<Family family>(std::integral_constant<Family, family>) {
      for (const float delta : {0.0F, 0.5F})
        for (const float A : {0.0F, -2.0F}) {
          INFO("delta " << delta << ", A " << A);
          Worst worst;
          const auto got = StepDerivative<family>(method_parameters(method.id), delta)(A);
          const auto expected = discretize(method.id, exactly<double>(delta), exactly<double>(A));
          worst.add("decay", got.decay, expected.decay, delta * A);
          worst.add("input", got.input, expected.input, delta * A);
          worst.add("previous", got.previous, expected.previous_input, delta * A);
          INFO(worst.where);
          CHECK(worst.share <= 1);
        }
      CHECK(input_varies(family) ==
            (discretize(method.id, exactly(0.5), exactly(-1.0)).input.by_A.value != 0));
    });
  }
}
