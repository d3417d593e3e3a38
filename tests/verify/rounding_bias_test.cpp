// The check of stochastic rounding: honest rounding passes, however few or many elements there are; what is a
// neighbour each time and wrong in the mean does not.

#include "verify/rounding_bias.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "catch.h"
#include "verify/compare.h"
#include "verify/dequantized.h"
#include "verify/describe.h"

using namespace ssmbench;

namespace {

/// Values of `rows` × 16 that are stored in f16, whose binades go down to its subnormals.
struct Values {
  std::vector<double> value;
  std::vector<float> bound, step;

  Values(std::int64_t rows, std::mt19937& random, float bound_of_all = 0) {
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> binade(-22, 2);
    for (std::int64_t i = 0; i < rows * 16; ++i) {
      value.push_back(normal(random) * std::exp2(binade(random)));
      bound.push_back(bound_of_all * std::abs(static_cast<float>(value.back())));
      step.push_back(static_cast<float>(ulp_at(value.back(), DType::f16)));
    }
  }

  Expectation expectation() const {
    return {.values = value.data(), .bound = bound.data(), .step = step.data(), .stochastic = true};
  }
};

/// `share`: the probability to be rounded away from zero, of the element's part f above its lower neighbour
/// and its value. `draw`: uniform, by element.
OutputComparison judge(const Values& values, const std::function<double(double f, double value)>& share,
                       const std::function<double(std::size_t i)>& draw) {
  const auto count = static_cast<std::int64_t>(values.value.size());
  const HostTensor output({"state", Role::output, DType::f16, {count / 16, 16}, {0, 1}});
  for (std::size_t i = 0; i < values.value.size(); ++i) {
    const double steps = std::abs(values.value[i]) / values.step[i];
    const double f = steps - std::floor(steps);
    const double stored =
        (std::floor(steps) + (draw(i) < share(f, values.value[i]) ? 1 : 0)) * values.step[i];
    store_from_double(output.buffer.data(), static_cast<std::int64_t>(i), DType::f16,
                      std::copysign(stored, values.value[i]));
  }
  return compare_output(output.view(), values.expectation(), {});
}

double as_it_should(double f, double /*value*/) {
  return f;
}

}  // namespace

TEST_CASE("stochastic rounding passes where it is honest, of one row and of many, whatever the draw") {
  for (const std::int64_t rows : {1, 10, 300})
    for (unsigned seed = 0; seed < 10; ++seed) {
      std::mt19937 random(seed);
      std::uniform_real_distribution<double> uniform;
      const Values values(rows, random);
      const auto result = judge(values, as_it_should, [&](std::size_t) { return uniform(random); });
      INFO(why_failed(result));
      CHECK(result.passed());
      REQUIRE(result.rounding_bias);
      CHECK(result.rounding_bias->ratio < 0.9);
    }
}

TEST_CASE("stochastic rounding that is wrong in the mean fails, and the message says among which elements") {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> uniform;
  const Values values(1000, random);
  const auto any = [&](std::size_t) { return uniform(random); };
  const auto check = [&](const OutputComparison& result, const std::string& among) {
    CHECK_FALSE(result.passed());
    CHECK(result.nonfinite == 0);
    CHECK(result.tolerance_ratio <= 1);
    CHECK(cause_of_failure(result) == Cause::distribution);
    INFO(why_failed(result));
    CHECK(result.rounding_bias->among.starts_with(among));
  };
  check(judge(
            values, [](double, double) { return 1.0; }, any),
        "all");
  check(judge(
            values, [](double, double) { return 0.0; }, any),
        "all");
  check(judge(
            values, [](double f, double) { return f * f; }, any),
        "all");
  check(judge(
            values, [](double f, double) { return 0.9 * f; }, any),
        "all");
  // Up, whatever the sign: half of them away from zero.
  check(judge(
            values, [](double, double value) { return value > 0 ? 1.0 : 0.0; }, any),
        "all");
  // One binade only; one column only.
  check(judge(
            values, [](double f, double value) { return std::ilogb(value) == -15 ? 1.0 : f; }, any),
        "values around 2^-15");
  check(judge(values, as_it_should, [&](std::size_t i) { return i % 16 == 3 ? 0.0 : uniform(random); }),
        "index 3 of the last axis");
}

TEST_CASE("what is no neighbour is wrong on its own") {
  std::mt19937 random(8);
  const Values values(1000, random);
  Values shifted = values;
  for (std::size_t i = 0; i < shifted.value.size(); ++i) shifted.value[i] += 1.01 * shifted.step[i];
  const HostTensor output({"state", Role::output, DType::f16, {1000, 16}, {0, 1}});
  for (std::size_t i = 0; i < values.value.size(); ++i)
    store_from_double(output.buffer.data(), static_cast<std::int64_t>(i), DType::f16, values.value[i]);
  const auto result = compare_output(output.view(), shifted.expectation(), {});
  CHECK(result.tolerance_ratio > 1);
}

TEST_CASE("errors within the bound are no bias") {
  std::mt19937 random(9);
  std::uniform_real_distribution<double> uniform;
  // 2·2^-24·4096·|h|: half a step at least of a normal number, and of others in proportion.
  const Values values(2000, random, 4096);
  const auto shifted = [](double f, double value) {
    return std::min(1.0, f + 0.1 * std::min(1.0, std::abs(value) * 0x1p14));
  };
  const auto result = judge(values, shifted, [&](std::size_t) { return uniform(random); });
  INFO(why_failed(result));
  CHECK(result.passed());
}

TEST_CASE("what is in units of a scale is judged as what it stands for") {
  TensorSpec spec{"state", Role::output, DType::i8, {2, 3}, {0, 1}};
  spec.scaled_by = "state_scale";
  std::vector<HostTensor> outputs;
  outputs.emplace_back(spec);
  outputs.emplace_back(TensorSpec{"state_scale", Role::output, DType::f32, {2}, {0}});
  for (std::int64_t i = 0; i < 6; ++i) store_from_double(outputs[0].buffer.data(), i, DType::i8, 10.0 * i);
  for (std::int64_t i = 0; i < 2; ++i) store_from_double(outputs[1].buffer.data(), i, DType::f32, 0.5 + i);
  CHECK_FALSE(dequantized(outputs[1], outputs));
  const auto values = dequantized(outputs[0], outputs);
  REQUIRE(values);
  for (std::int64_t i = 0; i < 6; ++i)
    CHECK(load_as_double(values->buffer.data(), i, DType::f64) == 10.0 * i * (i < 3 ? 0.5 : 1.5));
  // Half a step of 0.5, and of 1.5.
  std::vector<double> expected{0.24, 5.24, 10.24, 45.74, 60.74, 75.74};
  const std::vector<float> bound(6, 0), step{0.5F, 0.5F, 0.5F, 1.5F, 1.5F, 1.5F};
  const auto compare = [&] {
    return compare_output(values->view(),
                          {.values = expected.data(), .bound = bound.data(), .step = step.data()}, {});
  };
  CHECK(compare().passed());
  expected[4] = 60.76;
  CHECK(compare().tolerance_ratio > 1);
  outputs.pop_back();
  CHECK_THROWS_AS(dequantized(outputs[0], outputs), std::logic_error);
}
