// Steps of cuda-fused's fast kernel against the reference's discretizations, in units of what these allow. On
// the host 2^x and 1/x are better by a roundoff each than on the GPU; the bounds leave that room.

#include "kernels/selective_scan/fused/step.cuh"

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>
#include <vector>

#include "catch.h"
#include "reference/common/discretization.h"

using namespace ssmbench;
using namespace ssmbench::fused;

namespace {

struct Coefficients {
  float decay, input, previous;
};

/// Ā, c·u·B and c'·u·B, with u and B of 1: h is the step from 1 without B, and from 0 with that of this step
/// or of the one before.
template <bool kStateCoefficients>
Coefficients coefficients_of(MethodId method, float delta, float A) {
  return with_family(method, [&]<Family family>(std::integral_constant<Family, family>) -> Coefficients {
    using Step = ScanStep<family, kStateCoefficients>;
    const MethodParameters parameters = step_parameters(method);
    const Step step(parameters, delta, Step::kTakesGain ? delta : 0.5F);
    const auto state = Step::state(parameters, A);
    const auto next = [&](float h, float B, float before) {
      return next_state<family>(step, state, h, B, before);
    };
    return {next(1.0F, 0.0F, 0.0F), next(0.0F, 1.0F, 0.0F), next(0.0F, 0.0F, 0.5F)};
  });
}

/// Taylor methods keep coefficients of a state or make a step's.
Coefficients coefficients(bool of_state, MethodId method, float delta, float A) {
  return of_state ? coefficients_of<true>(method, delta, A) : coefficients_of<false>(method, delta, A);
}

/// z from 1e-12 to 80, negative and positive.
std::vector<double> points() {
  std::vector<double> all{0.0};
  for (double z = 1e-12; z < 80; z *= z < 1e-3 ? 1.31 : 1.0007) {
    all.push_back(-z);
    all.push_back(z);
  }
  return all;
}

/// Errors relative to a bound, both of at least half of the smallest normal number.
double ratio(double got, double exact, double bound) {
  const double error = std::abs(got - exact);
  return error <= 0x1p-126 ? 0 : error / (bound * 0x1p-24);
}

}  // namespace

TEST_CASE("steps of the fast kernel keep to what their tolerance counts") {
  // Scaling A by log2(e) adds 1.25 roundoffs to z, as an error of Δ would; tolerances are twice the bound.
  constexpr double kScaling = 1.25;
  const bool of_state = GENERATE(true, false);
  for (const Method& method : methods()) {
    INFO(method.name << ", coefficients of a state: " << of_state);
    double decay = 0;
    double input = 0;
    double previous = 0;
    for (const float delta : {0x1p-20F, 0.013F, 0.7F, 4.0F})
      for (const double z : points()) {
        const auto A = static_cast<float>(z / static_cast<double>(delta));
        const auto exact = discretize<double>(method.id, delta, A);
        const auto error = discretization_error<double>(method.id, delta, kScaling, A, exact);
        const auto got = coefficients(of_state, method.id, delta, A);
        decay = std::max(decay, ratio(got.decay, exact.decay, error.decay));
        input = std::max(input, ratio(got.input, exact.input, error.input));
        previous = std::max(previous, ratio(got.previous, exact.previous_input, error.previous_input));
      }
    CHECK(decay <= 1);
    CHECK(input <= 1);
    CHECK(previous <= 1);
  }
}

TEST_CASE("the fast kernel's foh is accurate to a few roundoffs at every z") {
  // Near 0: e^z + 1 and its product with Δ 1.5, the polynomial 2, the product 1. From |z| = 0.35 on: e^z 1
  // and |z|·2, times 3.5 at most, 1/A and the result 1 each.
  double worst = 0;
  for (const float delta : {0x1p-20F, 0.013F, 0.7F, 4.0F})
    for (const double z : points()) {
      const auto A = static_cast<float>(z / static_cast<double>(delta));
      const double exact = discretize<double>(MethodId::foh, delta, A).input;
      worst = std::max(worst, ratio(coefficients(true, MethodId::foh, delta, A).input, exact, exact) -
                                  (z > 1 ? 2 * z : 0));  // e^z itself is off by as much
    }
  CHECK(worst <= 6);
}

TEST_CASE("steps of two samples keep their half of u·B for the next") {
  const MethodParameters parameters = step_parameters(MethodId::trapezoidal);
  float before = 7.0F;
  ScanStep<Family::trapezoidal>(parameters, 0.1F, 0.25F)(-1.0F, 1.0F, 3.0F, before);
  CHECK(before == 0.75F);
  const StateA<float> state(-1.0F);
  ScanStep<Family::foh_exact>(parameters, 0.1F, 0.25F)(state, 1.0F, 5.0F, before);
  CHECK(before == 1.25F);
}

TEST_CASE("a step of size 0 of the fast kernel changes nothing, and A = 0 integrates") {
  const bool of_state = GENERATE(true, false);
  for (const Method& method : methods()) {
    INFO(method.name << ", coefficients of a state: " << of_state);
    for (const float A : {0.0F, -2.0F, -1e12F}) {
      CHECK(coefficients(of_state, method.id, 0.0F, A).decay == 1.0F);
      CHECK(coefficients(of_state, method.id, 0.0F, A).input == 0.0F);
      CHECK(coefficients(of_state, method.id, 0.0F, A).previous == 0.0F);
    }
    CHECK(coefficients(of_state, method.id, 0.5F, 0.0F).decay == 1.0F);
    const auto [decay, input, previous] = coefficients(of_state, method.id, 0.5F, 0.0F);
    if (!method.name.starts_with("vim_")) CHECK(input + previous == 0.5F);
  }
  CHECK(coefficients(of_state, MethodId::foh, 4.0F, -700.0F).input == 1 / 700.0F);
  CHECK(std::isinf(coefficients(of_state, MethodId::bilinear, 1.0F, 2.0F).decay));
  CHECK(std::isinf(coefficients(of_state, MethodId::bilinear_flipped, 1.0F, -2.0F).input));
}
