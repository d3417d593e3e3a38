// How large the bounds are beside the values that they bound: a bound larger than its value lets a kernel
// pass that writes zeros. Every operation, method, kind of A, distribution and output.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "catch.h"
#include "inputs/distributions.h"
#include "inputs/inputs.h"
#include "model/method.h"
#include "reference/reference.h"
#include "support/host_tensors.h"
#include "support/scan_problem.h"
#include "support/ssd_problem.h"
#include "verify/compare.h"
#include "verify/tolerance.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The median tolerance of an output in f32 over its median size, of those elements that are judged.
double relative_tolerance(const Expectation& expected, std::int64_t count) {
  std::vector<double> sizes;
  std::vector<double> tolerances;
  for (std::int64_t i = 0; i < count; ++i) {
    const ExpectedElement element = expected.at(i);
    if (!std::isfinite(element.bound)) continue;
    sizes.push_back(std::abs(element.value));
    tolerances.push_back(tolerance_of(element, DType::f32, {}).arithmetic);
  }
  const double size = median(sizes);
  return size > 0 ? median(tolerances) / size : 0;
}

/// Every method, real and complex, with every option, of the operations over time.
std::vector<Problem> problems(std::int64_t steps) {
  std::vector<Problem> all;
  const Axes options{{"D", true},          {"z", true},
                     {"delta_bias", true}, {"delta_softplus", true},
                     {"dim", size(2)},     {"seqlen", size(steps)},
                     {"dstate", size(16)}, {"initial_state", true}};
  for (const auto* op : {&selective_scan_fwd(), &selective_scan_bwd()})
    for (const auto& method : methods())
      for (const char* A : {"real", "complex"}) {
        Axes axes{{"method", std::string(method.name)}, {"A", std::string(A)}};
        axes.insert(options.begin(), options.end());
        all.push_back(scan_problem(axes, *op));
      }
  for (const char* method : {"bilinear", "foh"}) {
    Axes axes{{"method", std::string(method)}, {"A", std::string("dense")}};
    axes.insert(options.begin(), options.end());
    all.push_back(scan_problem(axes));
  }
  for (const auto* op : {&ssd_chunk_scan_fwd(), &ssd_chunk_scan_bwd()})
    all.push_back(ssd_problem({{"seqlen", size(steps)}, {"dstate", size(16)}, {"headdim", size(4)}}, *op));
  return all;
}

/// Unstable methods amplify roundings as they amplify states.
bool is_stable(const Problem& problem) {
  return !problem.axes().contains("method") || problem.choice("method") != "bilinear_flipped";
}

/// dA of the chunked scan where all decays are near 0: implementations take it as a difference of sums that
/// are as large as the outputs.
bool is_difference(const Problem& problem, const std::string& output, const std::string& distribution) {
  return &problem.op() == &ssd_chunk_scan_bwd() && output == "dA" &&
         (distribution == "large_A" || distribution == "trained");
}
bool is_none(const Problem&, const std::string&, const std::string&) {
  return false;
}

/// Outputs whose tolerance over value is above `least`, without those that are known to be.
std::string table(std::int64_t steps, double least, decltype(is_none)& is_known) {
  std::string rows;
  for (const auto& problem : problems(steps)) {
    if (!is_stable(problem)) continue;
    for (const auto& distribution : distributions()) {
      const auto inputs = generate_inputs(
          problem, {.distribution = distribution.name, .values = "native", .seed = 5}, never_stop);
      for (const auto& [name, output] : compute_reference(problem, views_of(inputs), never_stop)) {
        const double ratio = relative_tolerance(output.expectation(), std::ssize(output.expected));
        if (ratio > least && !is_known(problem, name, distribution.name))
          rows += fmt::format("{:9.2g}  {:15} {} {}\n", ratio, name, distribution.name, problem.id());
      }
    }
  }
  return rows;
}

}  // namespace

TEST_CASE("table of tolerances over values", "[.bounds]") {
  for (const std::int64_t steps : {65, 257, 1025})
    fmt::print("{} steps\n{}", steps, table(steps, 0.001, is_none));
}

TEST_CASE("gradients of the bilinear rule with complex A that are zeroed or 1000 times too large fail") {
  for (const std::int64_t steps : {65, 257}) {
    const Problem problem = scan_problem({{"method", "bilinear"},
                                          {"A", "complex"},
                                          {"delta_bias", true},
                                          {"delta_softplus", true},
                                          {"dim", size(2)},
                                          {"seqlen", size(steps)},
                                          {"dstate", size(16)}},
                                         selective_scan_bwd());
    const auto inputs =
        generate_inputs(problem, {.distribution = "mamba", .values = "native", .seed = 3}, never_stop);
    const auto reference = compute_reference(problem, views_of(inputs), never_stop);
    for (const TensorSpec& spec : specs_of(problem, Role::output)) {
      if (spec.dtype == DType::c64) continue;
      const ReferenceOutput& expected = reference.at(spec.name);
      for (const double factor : {0.0, 1000.0, 1.0}) {
        HostTensor got(spec);
        for (std::int64_t i = 0; i < element_count(spec.shape); ++i)
          store_from_double(got.buffer.data(), i, spec.dtype, factor * expected.expected[i]);
        INFO(spec.name << " times " << factor << ", " << steps << " steps");
        CHECK(compare_output(got.view(), expected.expectation(), {}).passed() == (factor == 1));
      }
    }
  }
}

TEST_CASE("tolerances are small beside the values") {
  CHECK(table(65, 1, is_difference) == "");
}
