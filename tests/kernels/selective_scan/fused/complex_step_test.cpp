// Steps with complex states of cuda-fused's fast kernel against the reference's discretizations, in units of
// what these allow. On the host 2^x and 1/x are better by a roundoff each than on the GPU; the bounds leave
// that room.

#include "kernels/selective_scan/fused/complex_step.cuh"

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <type_traits>
#include <vector>

#include "catch.h"
#include "reference/common/discretization.h"

using namespace ssmbench;
using namespace ssmbench::fused;

namespace {

using Wide = std::complex<double>;

Wide wide(Complex z) {
  return {z.re, z.im};
}

struct ComplexCoefficients {
  Complex decay, input, previous;
};

/// Ā, c·u·B and c'·u·B, with u and B of 1: h is the step from 1 without B, and from 0 with that of this step
/// or of the one before.
ComplexCoefficients complex_coefficients(MethodId method, float delta, Complex A) {
  return with_family(method, [&]<Family family>(std::integral_constant<Family, family>) {
    using Step = ComplexScanStep<family>;
    const MethodParameters parameters = method_parameters(method);
    const Step step(parameters, delta, Step::kTakesGain ? delta : 0.5F);
    const auto state = Step::state(parameters, A);
    const auto next = [&](float h, float B, float before) {
      Complex input_before{before, 0};
      return next_state<family>(step, state, Complex{h, 0}, Complex{B, 0}, input_before);
    };
    return ComplexCoefficients{next(1.0F, 0.0F, 0.0F), next(0.0F, 1.0F, 0.0F), next(0.0F, 0.0F, 0.5F)};
  });
}

/// z of magnitudes from 1e-12 to 80: real ones, imaginary ones, and others.
std::vector<Wide> complex_points() {
  std::vector<Wide> all{0.0};
  for (double magnitude = 1e-12; magnitude < 80; magnitude *= magnitude < 1e-3 ? 1.7 : 1.003)
    for (const double angle : {3.1415926, 3.0, 2.3, -2.0, 1.6, -1.5707963, 1.5, 0.4, 0.0})
      all.push_back(std::polar(magnitude, angle));
  return all;
}

/// Errors relative to a bound, both of at least half of the smallest normal number.
double complex_ratio(Complex got, Wide exact, double bound) {
  const double error = std::abs(wide(got) - exact);
  if (std::isnan(error)) return std::numeric_limits<double>::infinity();
  return error <= 0x1p-126 ? 0 : error / (bound * 0x1p-24);
}

}  // namespace

TEST_CASE("complex steps of the fast kernel keep to what their tolerance counts") {
  // Scaling A by log2(e) and 1/2π adds 1.25 roundoffs to z, as an error of Δ would. Both parts of a complex
  // number have roundings; tolerances are twice the bound.
  constexpr double kScaling = 1.25;
  constexpr double kBothParts = 1.5;
  for (const Method& method : methods()) {
    INFO(method.name);
    double decay = 0;
    double input = 0;
    double previous = 0;
    for (const float delta : {0x1p-20F, 0.013F, 0.7F, 4.0F})
      for (const Wide z : complex_points()) {
        const Complex A{static_cast<float>(z.real() / static_cast<double>(delta)),
                        static_cast<float>(z.imag() / static_cast<double>(delta))};
        const auto exact = discretize<Wide>(method.id, delta, wide(A));
        const auto error = discretization_error<Wide>(method.id, delta, kScaling, wide(A), exact);
        const auto got = complex_coefficients(method.id, delta, A);
        decay = std::max(decay, complex_ratio(got.decay, exact.decay, error.decay));
        input = std::max(input, complex_ratio(got.input, exact.input, error.input));
        previous =
            std::max(previous, complex_ratio(got.previous, exact.previous_input, error.previous_input));
      }
    CAPTURE(decay, input, previous);
    CHECK(decay <= kBothParts);
    CHECK(input <= kBothParts);
    CHECK(previous <= kBothParts);
  }
}

TEST_CASE("a turn is accurate to a few roundoffs and never grows") {
  // √2·sin and √2·cos of half the angle have 2.6 each: two products, half of one that is added and some of
  // the polynomial. Drop has the first twice, and both have a rounding of their own.
  double drop = 0;
  double sine = 0;
  for (double turns = 1e-12; turns < 2; turns *= 1.0007)
    for (const float rate : {static_cast<float>(turns), -static_cast<float>(turns)}) {
      const double angle = 2 * 3.14159265358979323846 * static_cast<double>(rate);
      const double exact_sine = std::sin(angle);
      const double exact_drop = -2 * std::sin(angle / 2) * std::sin(angle / 2);
      const Turn got = turn(1.0F, rate);
      drop = std::max(drop, complex_ratio({got.drop, 0}, exact_drop, std::abs(exact_drop)));
      // Next to half turns the angle itself is off by a roundoff of the float next to it.
      sine =
          std::max(sine, complex_ratio({got.sine, 0}, exact_sine, turns < 0.25 ? std::abs(exact_sine) : 1));
    }
  CHECK(drop <= 6);
  CHECK(sine <= 4);
  for (const float rate : {1e7F, 5.1e8F, 7.3e9F, 3e30F})
    for (const float delta : {1.0F, 0.3F, 1e-7F})
      CHECK(square_magnitude(turned(1.0F, turn(delta, rate))) < 1.00001F);
  CHECK(std::isnan(turn(1.0F, std::numeric_limits<float>::infinity()).sine));
  CHECK(std::isnan(turn(1.0F, std::nanf("")).sine));
}

TEST_CASE("complex steps of two samples keep their half of u·B for the next") {
  const MethodParameters parameters = method_parameters(MethodId::trapezoidal);
  const auto kept = [&]<Family family>(std::integral_constant<Family, family>) {
    using Step = ComplexScanStep<family>;
    Complex before{7.0F, 7.0F};
    Step(parameters, 0.1F, 0.25F)(Step::state(parameters, {-1.0F, 2.0F}), {1.0F, 0.0F}, {3.0F, 5.0F}, before);
    return wide(before);
  };
  CHECK(kept(std::integral_constant<Family, Family::trapezoidal>()) == Wide(0.75, 1.25));
  CHECK(kept(std::integral_constant<Family, Family::foh_exact>()) == Wide(0.75, 1.25));
}

TEST_CASE("a complex step of size 0 of the fast kernel changes nothing, and A = 0 integrates") {
  for (const Method& method : methods()) {
    INFO(method.name);
    for (const Complex A : {Complex{0, 0}, Complex{-2, 3}, Complex{0, -1e9F}, Complex{-1e9F, 0}}) {
      const auto still = complex_coefficients(method.id, 0.0F, A);
      CHECK(wide(still.decay) == 1.0);
      CHECK(wide(still.input) == 0.0);
      CHECK(wide(still.previous) == 0.0);
    }
    const auto integral = complex_coefficients(method.id, 0.5F, {0, 0});
    CHECK(std::abs(wide(integral.decay) - 1.0) < 1e-7);
    if (!method.name.starts_with("vim_"))
      CHECK(std::abs(wide(integral.input) + wide(integral.previous) - 0.5) < 1e-7);
  }
  const Complex pole = complex_coefficients(MethodId::bilinear, 1.0F, {2, 0}).decay;
  CHECK(!std::isfinite(std::abs(wide(pole))));
}
