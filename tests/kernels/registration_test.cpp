// "An implementation is one new file and one line": this file is such a file. Nothing else names what it
// registers, and it goes through planning, running and verification like any other.

#include <algorithm>

#include "catch.h"
#include "model/implementation.h"
#include "support/find_implementation.h"
#include "support/run_plan.h"
#include "support/scan_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

std::optional<std::string> unsupported(const Problem& problem) {
  if (problem.size("seqlen") == 1 && problem.size("dim") == 1 && problem.size("dstate") == 1 &&
      problem.size("batch") == 1 && problem.dtype() == DType::f32 && !problem.flag("delta_softplus") &&
      !problem.flag("delta_bias") && !problem.flag("D") && !problem.flag("z") &&
      !problem.flag("initial_state"))
    return {};
  return "test-one-step takes a single bare step";
}

/// h = Δ·B·u, out = C·h.
Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  check_contract(problem, tensors);
  const auto at = [&](const char* name) { return static_cast<float*>(tensors.at(name).data); };
  return [u = at("u"), delta = at("delta"), B = at("B"), C = at("C"), out = at("out"),
          h = at("last_state")](void*) {
    *h = *delta * *B * *u;
    *out = *C * *h;
  };
}

const Registration registration{{.name = "test-one-step",
                                 .op = "selective_scan_fwd",
                                 .device = DeviceKind::cpu,
                                 .summary = "a single step, to test registration",
                                 .unsupported = unsupported,
                                 .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
                                 .work = [](const Problem&) { return Work{}; },
                                 .bind = bind}};

}  // namespace

TEST_CASE("a file with one registration line takes part in everything") {
  Selection selection;
  selection.impl = "test-one-step";
  const auto results =
      run_cases({make_case(scan_problem()), make_case(scan_problem({{"seqlen", size(2)}}))}, selection);
  REQUIRE(results.size() == 2);
  CHECK(results[0].status == Status::pass);
  CHECK(results[1].status == Status::skip);
  CHECK(results[1].reason == "test-one-step takes a single bare step");
}

TEST_CASE("least work is the operation's, unless an implementation may need less") {
  const Problem problem = scan_problem();
  Implementation implementation = test::find_implementation("selective_scan_fwd", "cpu-scalar");
  CHECK(least_work(implementation, problem).fmas == problem.op().least_work(problem, Math::f32).fmas);
  implementation.work = [](const Problem&) { return Work{.bytes = 1, .fmas = 2}; };
  CHECK(least_work(implementation, problem).fmas == 2);
}

TEST_CASE("the registry is ordered, and every entry says who it is") {
  const auto& all = implementations();
  CHECK(std::ranges::is_sorted(all, {}, [](const Implementation& i) { return std::pair(i.op, i.name); }));
  for (const auto& implementation : all) {
    INFO(implementation.name);
    CHECK(find_op(implementation.op) != nullptr);
    CHECK_FALSE(implementation.summary.empty());
    CHECK((implementation.name.starts_with("test-") ||
           implementation.name.starts_with(std::string(name_of(implementation.device)) + "-")));
  }
}

TEST_CASE("the same name twice for one operation is refused") {
  const Implementation copy = implementations().front();
  CHECK_THROWS_AS(Registration(copy), std::logic_error);
}
