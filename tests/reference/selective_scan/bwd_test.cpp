// The fp64 gradients against derivatives of the definition (scan_loss.h) that are taken another way: by dual
// numbers and by central differences.

#include <omp.h>

#include <cmath>
#include <random>

#include "base/errors.h"
#include "catch.h"
#include "inputs/inputs.h"
#include "model/method.h"
#include "reference/reference.h"
#include "reference/selective_scan/loss.h"
#include "support/host_tensors.h"
#include "support/scan_problem.h"
#include "verify/tolerance.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

double uniform(std::mt19937& random, double low, double high) {
  return low + (high - low) * static_cast<double>(random()) / 4294967296.0;
}

/// Well-scaled inputs: 0 < Δ < 1.2, |z| < 1.8. One decay rate and, where it is Δ itself, one delta are
/// exactly 0.
std::vector<HostTensor> inputs_of(const Problem& problem) {
  std::mt19937 random(20240607);
  const bool complex = SelectiveScan(problem).complex;
  const bool softplus = SelectiveScan(problem).delta_softplus;
  return make_inputs(problem, [&](const std::string& name, std::int64_t i) {
    if (name == "A" && i < (complex ? 2 : 1)) return 0.0;
    if (name == "A") return complex && i % 2 == 1 ? uniform(random, -1, 1) : uniform(random, -1, -0.2);
    if (name == "delta" && i == 0) return 0.0;
    if (name == "delta") return softplus ? uniform(random, -1, 0.5) : uniform(random, 0.1, 1);
    if (name == "delta_bias") return uniform(random, 0, 0.2);
    return uniform(random, -1, 1);
  });
}

Problem backward_problem(const Axes& axes) {
  return scan_problem(axes, selective_scan_bwd());
}

/// The derivative of the loss by component `i` of `name`, forward mode.
double by_dual(const Problem& problem, const Values<double>& values, const std::string& name, std::size_t i) {
  Values<Dual> seeded;
  for (const auto& [tensor, numbers] : values) seeded[tensor].assign(numbers.begin(), numbers.end());
  seeded.at(name)[i].slope = 1;
  ScanLoss<Dual> scan(problem, seeded);
  scan.run();
  return scan.loss().slope;
}

/// The same by a central difference of step h: off by h²/6 of the third derivative and by ε/h of the loss, ε
/// = 2^-64.
double by_difference(const Problem& problem, const Values<double>& values, const std::string& name,
                     std::size_t i) {
  constexpr long double h = 1e-5L;
  Values<long double> moved;
  for (const auto& [tensor, numbers] : values) moved[tensor].assign(numbers.begin(), numbers.end());
  const auto loss_at = [&](long double value) {
    moved.at(name)[i] = value;
    ScanLoss<long double> scan(problem, moved);
    scan.run();
    return scan.loss();
  };
  const auto here = static_cast<long double>(values.at(name)[i]);
  return static_cast<double>((loss_at(here + h) - loss_at(here - h)) / (2 * h));
}

using Derivative = double (*)(const Problem&, const Values<double>&, const std::string&, std::size_t);

/// Compares about `samples` evenly spread components of every gradient.
void check_gradients(const Problem& problem, Derivative derivative, double relative, std::size_t samples) {
  INFO(problem.id());
  const auto inputs = inputs_of(problem);
  const auto values = values_of_inputs(inputs);
  const auto outputs = compute_reference(problem, views_of(inputs), never_stop);
  for (const auto& spec : specs_of(problem, Role::output)) {
    const auto& expected = outputs.at(spec.name).expected;
    const std::string input = spec.name.substr(1);
    INFO(spec.name);
    REQUIRE(expected.size() == values.at(input).size());
    double scale = 0;
    for (const double value : expected) scale = std::max(scale, std::abs(value));
    REQUIRE(scale > 0.01);
    const std::size_t step =
        std::max<std::size_t>(1, expected.size() / samples) | 1U;  // odd: both parts of pairs
    for (std::size_t i = 0; i < expected.size(); i += step) {
      const double wanted = derivative(problem, values, input, i);
      const double off = std::abs(expected[i] - wanted);
      if (!(off <= relative * (std::abs(wanted) + 0.01 * scale))) {
        INFO("component " << i << ": " << expected[i] << ", should be " << wanted);
        CHECK(off <= relative * (std::abs(wanted) + 0.01 * scale));
      }
    }
  }
}

/// Every option on and off, B and C constant and variable, groups, layouts; the smallest sizes that have all
/// of it.
const std::vector<Axes> kOptions{
    {{"groups", size(2)},
     {"D", true},
     {"z", true},
     {"delta_bias", true},
     {"delta_softplus", true},
     {"initial_state", true},
     {"dlast_state", true}},
    {{"B", "constant"}, {"C", "constant"}, {"initial_state", true}, {"layout", "bld"}},
    {{"B", "constant"}, {"groups", size(4)}, {"z", true}, {"delta_bias", true}},
    {{"C", "constant"}, {"D", true}, {"delta_softplus", true}, {"layout", "bld"}, {"dlast_state", true}},
};

Problem small_problem(Axes axes, const std::string& method, const std::string& A) {
  axes.merge(Axes{{"method", method},
                  {"A", A},
                  {"batch", size(2)},
                  {"dim", size(4)},
                  {"seqlen", size(5)},
                  {"dstate", size(2)}});
  return backward_problem(axes);
}

}  // namespace

TEST_CASE("the gradients of every method are those of dual numbers") {
  for (const auto& method : method_names())
    for (const std::string A : {"real", "complex"})
      for (const auto& options : kOptions)
        check_gradients(small_problem(options, method, A), by_dual, 2e-12, 40);
}

TEST_CASE("the gradients of every method are central differences") {
  for (const auto& method : method_names())
    for (const std::string A : {"real", "complex"})
      check_gradients(small_problem(kOptions[0], method, A), by_difference, 1e-7, 10);
}

TEST_CASE("gradients across tiles of time, slabs of channels and batches") {
  // dim 34 in two groups of 17: a slab of 16 channels and a ragged one; seqlen 130: two tiles of 64 steps and
  // a tail; batch 33: more than one wave of batches where there is one slab.
  const Axes wide{
      {"batch", size(1)}, {"dim", size(34)}, {"groups", size(2)}, {"seqlen", size(130)}, {"dstate", size(2)}};
  const Axes tall{{"batch", size(67)}, {"dim", size(1)}, {"seqlen", size(65)}, {"dstate", size(1)}};
  for (Axes axes : {wide, tall}) {
    axes.merge(Axes{{"D", true},
                    {"z", true},
                    {"delta_bias", true},
                    {"delta_softplus", true},
                    {"initial_state", true},
                    {"dlast_state", true}});
    for (const std::string method : {"zoh", "foh_exact"}) {
      axes["method"] = method;
      check_gradients(backward_problem(axes), by_dual, 1e-11, 6);
    }
  }
}

TEST_CASE("the definition that derivatives are taken of is the forward reference's") {
  const Axes axes{{"batch", size(2)},
                  {"dim", size(4)},
                  {"groups", size(2)},
                  {"seqlen", size(9)},
                  {"dstate", size(3)},
                  {"D", true},
                  {"z", true},
                  {"delta_bias", true},
                  {"delta_softplus", true},
                  {"initial_state", true}};
  const auto inputs = inputs_of(scan_problem(axes));
  const auto expected =
      compute_reference(scan_problem(axes), views_of(inputs), never_stop).at("out").expected;
  const auto values = values_of_inputs(inputs);
  ScanLoss<double> scan(scan_problem(axes), values);
  scan.run();
  for (std::int64_t i = 0; i < std::ssize(expected); ++i)
    CHECK(std::abs(scan.out(i / 36, i / 9 % 4, i % 9) - expected[static_cast<std::size_t>(i)]) < 1e-13);
}

TEST_CASE("gradients are bitwise the same for any number of threads") {
  const Problem problem = backward_problem({{"batch", size(3)},
                                            {"dim", size(50)},
                                            {"seqlen", size(70)},
                                            {"dstate", size(3)},
                                            {"B", "constant"},
                                            {"delta_bias", true}});
  const auto inputs = inputs_of(problem);
  const int threads = omp_get_max_threads();
  const auto run_with = [&](int count) {
    omp_set_num_threads(count);
    auto outputs = compute_reference(problem, views_of(inputs), never_stop);
    omp_set_num_threads(threads);
    return outputs;
  };
  const auto one = run_with(1);
  const auto five = run_with(5);
  REQUIRE(one.size() == 6);
  for (const auto& [name, output] : one) {
    INFO(name);
    CHECK(output.expected == five.at(name).expected);
    CHECK(output.bound == five.at(name).bound);
  }
}

TEST_CASE("gradients whose reference is told to stop throw") {
  const std::atomic<bool> stop{true};
  const Problem problem = backward_problem({});
  const auto inputs = inputs_of(problem);
  CHECK_THROWS_AS(compute_reference(problem, views_of(inputs), stop), Interrupted);
}

TEST_CASE("the bounds of gradients catch a mistake of a thousandth") {
  // Elements at or above the root mean square; those near zero are sums that cancel.
  const Problem problem = backward_problem({{"batch", size(2)},
                                            {"dim", size(8)},
                                            {"seqlen", size(200)},
                                            {"dstate", size(16)},
                                            {"D", true},
                                            {"z", true},
                                            {"delta_bias", true},
                                            {"delta_softplus", true}});
  const auto inputs = generate_inputs(problem, {}, never_stop);
  for (const auto& [name, output] : compute_reference(problem, views_of(inputs), never_stop)) {
    INFO(name);
    double squares = 0;
    for (const double value : output.expected) squares += value * value;
    const double rms = std::sqrt(squares / static_cast<double>(output.expected.size()));
    double worst = 0;
    for (std::size_t i = 0; i < output.expected.size(); ++i)
      if (std::abs(output.expected[i]) >= rms)
        worst =
            std::max(worst, tolerance(output.expectation().at(static_cast<std::int64_t>(i)), DType::f32, {}) /
                                std::abs(output.expected[i]));
    CHECK(worst < 1e-3);
  }
}

TEST_CASE("gradients that may overflow f32 on the way are not judged, others are") {
  // A = 1, Δ = 10: the state grows by e^10 a step and passes 3.4e38 at the ninth.
  const auto outputs = [](std::int64_t seqlen) {
    const Problem problem = backward_problem({{"seqlen", size(seqlen)}});
    const auto inputs = make_inputs(
        problem, [](const std::string& name, std::int64_t) { return name == "delta" ? 10.0 : 1.0; });
    return compute_reference(problem, views_of(inputs), never_stop);
  };
  CHECK(std::isfinite(outputs(4).at("dA").bound[0]));
  const auto overflown = outputs(12);
  CHECK_FALSE(std::isfinite(overflown.at("dA").bound[0]));
  CHECK_FALSE(std::isfinite(overflown.at("dC").bound[11]));
  CHECK(std::isfinite(overflown.at("dC").bound[0]));
}
