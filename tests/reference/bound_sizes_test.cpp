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
#include "support/bound_sizes.h"
#include "support/host_tensors.h"
#include "support/random_cases.h"
#include "support/scan_problem.h"
#include "support/ssd_problem.h"
#include "verify/compare.h"
#include "verify/tolerance.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

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
      const Case one{.problem = problem,
                     .inputs = {.distribution = distribution.name, .values = "native", .seed = 5},
                     .budget_ms = {},
                     .source = {}};
      for (const auto& [name, ratio] : bound_sizes(one))
        if (ratio > least && !is_known(problem, name, distribution.name))
          rows += fmt::format("{:9.2g}  {:15} {} {}\n", ratio, name, distribution.name, problem.id());
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

TEST_CASE("coefficients that are small beside the step have tolerances of their own size") {
  for (const auto& method : methods()) {
    const Problem problem = scan_problem(
        {{"method", std::string(method.name)}, {"dim", size(2)}, {"seqlen", size(65)}, {"dstate", size(8)}});
    if (!is_stable(problem)) continue;
    const Case one{.problem = problem,
                   .inputs = {.distribution = "tiny_delta", .values = "native", .seed = 5},
                   .budget_ms = {},
                   .source = {}};
    for (const auto& [name, relative] : bound_sizes(one)) {
      INFO(method.name << " " << name);
      CHECK(relative > 0);
      CHECK(relative < 1e-2);
    }
  }
}

// Every operation; `ssmbench_random_cases --bounds 1000` searches further.
TEST_CASE("no tolerance of random problems is a thousand times its value and never used") {
  constexpr int kCases = 20;
  std::string rows;
  for (const auto* op : ops_on(DeviceKind::cpu)) {
    CaseDraw draw(20251123);
    for (int i = 0; i < kCases; ++i) {
      const Case one = draw.draw(*op);
      if (!is_stable(one.problem)) continue;
      for (const auto& [name, relative] : needless_bounds(one, 1000))
        rows += fmt::format("{:9.2g}  {:15} {}\n", relative, name, one.id());
    }
  }
  CHECK(rows == "");
}
