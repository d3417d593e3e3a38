// Mamba-3's gradients in fp64 against derivatives of the definition (definition.h), and what is known of them.

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/errors.h"
#include "catch.h"
#include "reference/mamba3/definition.h"
#include "support/mamba3_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

const OpSpec& forward_of(const Problem& problem) {
  return &problem.op() == &mamba3_siso_bwd() ? mamba3_siso_fwd() : mamba3_mimo_fwd();
}

/// Σ cotangent·output of the definition.
template <class R>
R loss(const Problem& problem, const std::map<std::string, std::vector<R>>& values) {
  const Problem forward(forward_of(problem), problem.axes());
  const Mamba3Definition<R> scan(forward, values);
  R sum(0);
  for (const auto& [name, output] : scan.out) {
    const auto& cotangent = values.at("d" + name);
    for (std::size_t i = 0; i < output.size(); ++i) sum = sum + cotangent[i] * output[i];
  }
  return sum;
}

template <class R>
std::map<std::string, std::vector<R>> as(const Values& values) {
  std::map<std::string, std::vector<R>> all;
  for (const auto& [name, numbers] : values) all[name].assign(numbers.begin(), numbers.end());
  return all;
}

/// The derivative of the loss by component `i` of `name`, forward mode.
double by_dual(const Problem& problem, const Values& values, const std::string& name, std::size_t i) {
  auto seeded = as<Dual>(values);
  seeded.at(name)[i].slope = 1;
  return loss<Dual>(problem, seeded).slope;
}

/// The same by a central difference of step h: off by h²/6 of the third derivative and by ε/h of the loss, ε
/// = 2^-64.
double by_difference(const Problem& problem, const Values& values, const std::string& name, std::size_t i) {
  constexpr long double h = 1e-5L;
  auto moved = as<long double>(values);
  const long double here = moved.at(name)[i];
  const auto loss_at = [&](long double value) {
    moved.at(name)[i] = value;
    return loss<long double>(problem, moved);
  };
  return static_cast<double>((loss_at(here + h) - loss_at(here - h)) / (2 * h));
}

using Derivative = double (*)(const Problem&, const Values&, const std::string&, std::size_t);

/// Compares about `samples` evenly spread components of every gradient.
void check_gradients(const Problem& problem, Derivative derivative, double relative, std::size_t samples) {
  INFO(problem.id());
  const Values values = drawn_values(problem);
  const auto outputs = reference_of(problem, values);
  for (const auto& [name, output] : outputs) {
    INFO(name);
    const auto& expected = output.expected;
    const std::string input = name.substr(1);
    REQUIRE(expected.size() == values.at(input).size());
    double scale = 0;
    for (const double value : expected) scale = std::max(scale, std::abs(value));
    CHECK(scale > 1e-3);
    for (const float bound : output.bound) CHECK((std::isfinite(bound) && bound >= 0));
    const std::size_t step = std::max<std::size_t>(1, expected.size() / samples);
    for (std::size_t i = 0; i < expected.size(); i += step) {
      const double wanted = derivative(problem, values, input, i);
      INFO("component " << i << ": " << expected[i] << ", should be " << wanted);
      CHECK(std::abs(expected[i] - wanted) <= relative * (std::abs(wanted) + scale));
    }
  }
}

/// Gradients of scans with every option on and off.
std::vector<Problem> problems() {
  return mamba3_scans(mamba3_siso_bwd(), mamba3_mimo_bwd());
}

double sum_of_products(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

}  // namespace

TEST_CASE("Mamba-3's gradients are those of dual numbers", "[mamba3]") {
  for (const auto& problem : problems()) check_gradients(problem, by_dual, 1e-12, 10);
}

TEST_CASE("Mamba-3's gradients are central differences", "[mamba3]") {
  const auto all = problems();
  for (std::size_t i = 0; i < all.size(); i += 3) check_gradients(all[i], by_difference, 1e-7, 5);
}

TEST_CASE("Mamba-3's gradients do not depend on the number of threads, and can be stopped", "[mamba3]") {
  for (const OpSpec* op : {&mamba3_siso_bwd(), &mamba3_mimo_bwd()}) {
    const Problem problem = mamba3_problem(mamba3_with_sizes({{"nheads", size(12)},
                                                              {"batch", size(2)},
                                                              {"seqlen", size(37)},
                                                              {"z", true},
                                                              {"D", true},
                                                              {"initial_states", true},
                                                              {"final_states", true}}),
                                           *op);
    const Values values = drawn_values(problem);
    const int threads = omp_get_max_threads();
    const auto several = reference_of(problem, values);
    omp_set_num_threads(1);
    const auto one = reference_of(problem, values);
    omp_set_num_threads(threads);
    for (const auto& [name, output] : several) {
      INFO(name);
      CHECK(output.expected == one.at(name).expected);
      CHECK(output.bound == one.at(name).bound);
      CHECK(output.operand_bound == one.at(name).operand_bound);
    }
    const std::atomic<bool> stop{true};
    const auto inputs = generate_inputs(problem, {}, never_stop);
    CHECK_THROWS_AS(compute_reference(problem, views_of(inputs), stop), Interrupted);
  }
}

TEST_CASE("out is linear in V and the states that go with it, and in Q and its bias", "[mamba3]") {
  const Problem problem = mamba3_problem(
      mamba3_with_sizes({{"seqlen", size(40)}, {"batch", size(2)}, {"z", true}, {"initial_states", true}}),
      mamba3_siso_bwd());
  const Values values = drawn_values(problem);
  const auto gradients = reference_of(problem, values);
  const Problem forward(mamba3_siso_fwd(), problem.axes());
  const double total = sum_of_products(values.at("dout"), reference_of(forward, values).at("out").expected);
  const auto of = [&](const char* input) {
    return sum_of_products(values.at(input), gradients.at(std::string("d") + input).expected);
  };
  CHECK(of("V") + of("Input_SSM_State") + of("Input_V_State") == Approx(total).epsilon(1e-11));
  CHECK(of("V") + of("Input_SSM_State") + of("Input_V_State") != Approx(of("V")).epsilon(1e-3));
  CHECK(of("Q") + of("Q_bias") == Approx(total).epsilon(1e-11));
  CHECK(of("K") + of("K_bias") + of("Input_SSM_State") + of("Input_K_State") == Approx(total).epsilon(1e-11));
}

TEST_CASE("nothing depends on the frame that angles start from", "[mamba3]") {
  for (const char* pairing : {"interleaved", "halves"}) {
    const Problem problem = mamba3_problem(
        mamba3_with_sizes({{"seqlen", size(50)}, {"initial_states", true}, {"rotary_pairing", pairing}}),
        mamba3_siso_bwd());
    Values values = drawn_values(problem);
    for (const char* state : {"Input_SSM_State", "Input_K_State"}) std::ranges::fill(values.at(state), 0.0);
    const auto gradients = reference_of(problem, values);
    double scale = 0;
    for (const double value : gradients.at("dAngles").expected) scale = std::max(scale, std::abs(value));
    const auto& of_angle = gradients.at("dInput_Angle_State");
    for (std::size_t i = 0; i < of_angle.expected.size(); ++i) {
      CHECK(std::abs(of_angle.expected[i]) < 1e-13 * scale);
      CHECK(of_angle.bound[i] > 0.1 * scale);  // sums of dθ do not cancel in f32
    }
  }
}

TEST_CASE("with no weight on the step itself a step's gradients are those of later steps", "[mamba3]") {
  const Problem problem = mamba3_problem(mamba3_with_sizes({{"seqlen", size(20)}}), mamba3_siso_bwd());
  Values values = drawn_values(problem);
  std::ranges::fill(values.at("Trap"), -64.0);
  const Mamba3 scan(problem);
  const std::int64_t row = scan.nheads * scan.headdim;
  std::fill(values.at("dout").begin() + 11 * row, values.at("dout").end(), 0.0);
  const auto gradients = reference_of(problem, values);
  const auto& dV = gradients.at("dV").expected;
  for (std::int64_t i = 10 * row; i < 20 * row; ++i) CHECK(std::abs(dV[i]) < 1e-20);
  CHECK(std::abs(dV[10 * row - 1]) > 1e-6);
}
