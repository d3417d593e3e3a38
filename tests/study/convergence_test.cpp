#include "study/convergence.h"

#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "catch.h"
#include "report/study_table.h"

using namespace ssmbench;

namespace {

using Complex = std::complex<double>;

const double kNone = std::numeric_limits<double>::infinity();
const std::vector<Complex> kDecays{-1, -16, {-0.5, M_PI}};

ConvergenceStudy study() {
  return {.A = kDecays, .methods = {}, .horizon = 8, .steps = {1024, 2048, 4096, 8192}};
}

}  // namespace

TEST_CASE("the exact solution is the one of the textbook, also in resonance") {
  for (const double t : {1e-3, 0.5, 1.0, 8.0, 1000.0}) {
    for (const Complex A : kDecays) {
      CAPTURE(t, A);
      const Complex want = (std::exp(A * t) - std::cos(t) - A * std::sin(t)) / (1.0 + A * A);
      // At small t the three terms cancel down to t²/2.
      CHECK(std::abs(exact_solution(A, t) - want) < 1e-14 * (1 + std::abs(A)));
    }
    // A = i: e^{it}·∫ e^{−is}·sin(s) ds, where the other form divides by 0.
    const Complex i(0, 1);
    const Complex want = std::exp(i * t) * (t - (1.0 - std::exp(-2.0 * i * t)) / (2.0 * i)) / (2.0 * i);
    CHECK(std::abs(exact_solution(i, t) - want) < 1e-13 * t);
  }
}

TEST_CASE("every method converges with its theoretical order") {
  const std::map<std::string, int> orders{
      {"zoh", 1},      {"foh", 1},           {"bilinear", 1},  {"bilinear_flipped", 0},
      {"poly", 1},     {"highorder", 1},     {"rk4", 1},       {"vim_foh", 0},
      {"vim_poly", 1}, {"vim_highorder", 1}, {"foh_exact", 2}, {"trapezoidal", 2}};
  for (const auto& method : methods())
    for (const Complex A : kDecays) {
      CAPTURE(method.name, A);
      const auto result = measure_convergence(study(), method, A);
      CHECK(result.order == orders.at(method.name));
      CHECK(std::fabs(result.measured_order - orders.at(method.name)) < 0.1);
      REQUIRE(result.errors.size() == 4);
      CHECK(result.errors[0].delta == 8.0 / 1024);
      CHECK(result.errors[3].steps == 8192);
    }
}

TEST_CASE("every method has its theoretical stability limit") {
  for (const auto& method : methods())
    for (const Complex A : kDecays) {
      CAPTURE(method.name, A);
      const auto result = measure_convergence(study(), method, A);
      const double want = method.name == "bilinear_flipped" ? 0 : kNone;
      CHECK(result.stability_limit == want);
      CHECK(result.measured_stability_limit == want);
    }
}

TEST_CASE("stability limits that are neither zero nor infinite are found") {
  // Hairer & Wanner, "Solving Ordinary Differential Equations II", section IV.2: on the negative axis
  // explicit Euler is stable up to 2 and the classical Runge-Kutta method up to 2.785.
  const auto euler = [](Complex z) { return 1.0 + z; };
  const auto runge_kutta = [](Complex z) {
    return 1.0 + z * (1.0 + z / 2.0 * (1.0 + z / 3.0 * (1.0 + z / 4.0)));
  };
  CHECK(std::fabs(measured_stability_limit(euler, -1) - 2) < 1e-3);
  CHECK(std::fabs(measured_stability_limit(runge_kutta, -1) - 2.785) < 1e-3);
  // |1 + z| ≤ 1 is a disk: at an angle of 2π/3 its chord from 0 has length 1.
  CHECK(std::fabs(measured_stability_limit(euler, std::polar(1.0, 2 * M_PI / 3)) - 1) < 1e-3);
}

TEST_CASE(
    "rounding errors are those of f32, grow with the number of steps and are not in the discretization "
    "error") {
  for (const Complex A : kDecays) {
    CAPTURE(A);
    const auto result = measure_convergence(
        {.A = {}, .methods = {}, .horizon = 8, .steps = {64, 1024, 16384}}, method_named("foh_exact"), A);
    const double unit = std::ldexp(1.0, -24);
    for (const auto& errors : result.errors) {
      CHECK(errors.rounding > unit);
      // The memory is 1/(Δ·|Re A|) steps, each of which makes a few roundings.
      CHECK(errors.rounding < 10 * unit * (1 + 1 / (errors.delta * std::fabs(A.real()))));
    }
    CHECK(result.errors.back().rounding > 4 * result.errors.front().rounding);
    // Second order takes an error of about Δ²: below what f32 can show.
    CHECK(result.errors.back().discretization < result.errors.back().rounding);
  }
}

TEST_CASE("a run that leaves the range of its arithmetic has no finite error") {
  // Δ = 1/8: z = -2, the pole of the flipped rule. The next step is past it, and grows beyond f32 but not
  // beyond fp64.
  const auto result = measure_convergence({.A = {}, .methods = {}, .horizon = 8, .steps = {64, 128}},
                                          method_named("bilinear_flipped"), -16);
  CHECK_FALSE(std::isfinite(result.errors[0].discretization));
  CHECK(std::isfinite(result.errors[1].discretization));
  CHECK_FALSE(std::isfinite(result.errors[1].rounding));
}

TEST_CASE("the table has a line per method, with the theoretical value beside the measured one") {
  const MethodConvergence result{.method = &method_named("bilinear_flipped"),
                                 .A = {-0.5, 3},
                                 .horizon = 8,
                                 .order = 0,
                                 .measured_order = 0.0123,
                                 .stability_limit = kNone,
                                 .measured_stability_limit = 2.7853,
                                 .errors = {{64, 0.125, 0.25, 1e-7}, {128, 0.0625, 0.125, 2e-7}}};
  CHECK(
      convergence_table({result}) ==
      "h' = A·h + sin(t) on [0, 8], A = -0.5+3i, 2 runs from Δ = 0.125 to Δ = 0.0625\n"
      "                         order    stability limit Δ|A|  discretization error    f32 rounding error\n"
      "method            theory  measured   theory  measured  largest Δ smallest Δ  largest Δ smallest Δ\n"
      "bilinear_flipped       0      0.01     none     2.785   2.50e-01   1.25e-01   1.00e-07   2.00e-07\n");
}
