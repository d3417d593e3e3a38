// x, the states on the way, in the fp64 reference of a scan and of its gradients.

#include "ops/selective_scan/x.h"

#include <cmath>
#include <string>
#include <vector>

#include "catch.h"
#include "reference/reference.h"
#include "support/host_tensors.h"
#include "support/scan_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

double value_of(const std::string& name, std::int64_t i) {
  const double spread = static_cast<double>(i * 37 % 101) / 101;
  if (name == "A") return -0.05 - 0.3 * spread;
  return name == "delta" ? 0.1 + spread : spread - 0.4;
}

ReferenceOutputs scan_reference(const Problem& problem, const std::vector<HostTensor>& inputs) {
  return compute_reference(problem, views_of(inputs), never_stop);
}

/// The gradients where x is `factor` times what a scan of the same inputs has.
ReferenceOutputs gradients_with_x(const Axes& axes, double factor) {
  Axes with_x = axes;
  with_x["x"] = true;
  const Problem scan = scan_problem(with_x);
  const auto x = scan_reference(scan, make_inputs(scan, value_of)).at("x").expected;
  const Problem backward = scan_problem(with_x, selective_scan_bwd());
  return scan_reference(backward, make_inputs(backward, [&](const std::string& name, std::int64_t i) {
                          return name == "x" ? factor * x[static_cast<std::size_t>(i)] : value_of(name, i);
                        }));
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  double scale = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(a[i] - b[i]));
    scale = std::max(scale, std::abs(b[i]));
  }
  return largest / scale;
}

}  // namespace

TEST_CASE("the states on the way of the reference are the last states of the steps before", "[x]") {
  for (const char* method : {"zoh", "trapezoidal"})
    for (const char* A : {"real", "complex"}) {
      // One channel with one state: every sequence has the same index at a step, however many there are.
      const auto steps_of = [&](std::int64_t seqlen, bool x) {
        const Problem problem = scan_problem(
            {{"method", method}, {"A", A}, {"seqlen", size(seqlen)}, {"initial_state", true}, {"x", x}});
        return scan_reference(problem, make_inputs(problem, value_of));
      };
      INFO(method << " " << A);
      const std::size_t values = A == std::string("real") ? 1 : 2;
      constexpr std::int64_t kSteps = 150;  // three tiles of the reference, the last a part of one
      const auto all = steps_of(kSteps, true);
      REQUIRE(all.at("x").expected.size() == values * ((kSteps + kStepsOfX - 1) / kStepsOfX));
      CHECK(all.at("out").expected == steps_of(kSteps, false).at("out").expected);
      CHECK(all.at("out").bound == steps_of(kSteps, false).at("out").bound);
      for (std::size_t i = 0; i < values; ++i) {
        CHECK(all.at("x").expected[i] ==
              static_cast<float>(value_of("initial_state", static_cast<std::int64_t>(i))));
        CHECK(all.at("x").bound[i] == 0);
      }
      for (std::int64_t k = 1; kStepsOfX * k < kSteps; ++k) {
        const auto before = steps_of(kStepsOfX * k, false);
        for (std::size_t i = 0; i < values; ++i) {
          const std::size_t at = values * static_cast<std::size_t>(k) + i;
          CHECK(std::abs(all.at("x").expected[at] - before.at("last_state").expected[i]) < 1e-14);
          CHECK(all.at("x").bound[at] > 0);
        }
      }
    }
}

TEST_CASE("gradients from the states of a scan are those without them, and follow other states", "[x]") {
  for (const char* method : {"zoh", "foh", "trapezoidal"})
    for (const char* A : {"real", "complex"}) {
      const Axes axes{
          {"method", method},  {"A", A},    {"batch", size(2)}, {"dim", size(19)},      {"seqlen", size(141)},
          {"dstate", size(3)}, {"z", true}, {"D", true},        {"initial_state", true}};
      const Problem plain = scan_problem(axes, selective_scan_bwd());
      const auto expected = scan_reference(plain, make_inputs(plain, value_of));
      const auto from_x = gradients_with_x(axes, 1);
      const auto from_others = gradients_with_x(axes, 1.5);
      for (const auto& [name, output] : expected) {
        INFO(method << " " << A << " " << name);
        CHECK(largest_difference(from_x.at(name).expected, output.expected) < 1e-6);  // f32 roundings of x
        // What does not depend on states is bitwise the same; dz, dA, dC and ddelta are not.
        const bool of_states = name == "dz" || name == "dA" || name == "dC" || name == "ddelta";
        CHECK((largest_difference(from_others.at(name).expected, output.expected) > 1e-2) == of_states);
      }
    }
}
