#include "sweep/plan.h"

#include "catch.h"
#include "model/problem.h"
#include "ops/linear_scan/linear_scan.h"
#include "ops/selective_scan/selective_scan.h"
#include "ops/ssd_chunk_scan/ssd_chunk_scan.h"
#include "reference/reference.h"
#include "support/find_implementation.h"
#include "support/run_plan.h"
#include "support/scan_problem.h"
#include "support/ssd_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

Case case_of(std::map<std::string, AxisValue> axes, const std::string& values = "native") {
  Case made = make_case(scan_problem(std::move(axes)));
  made.inputs.values = values;
  return made;
}

}  // namespace

TEST_CASE("cases that see the same values share a reference") {
  CHECK(reference_key(case_of({{"layout", "bdl"}})) == reference_key(case_of({{"layout", "bld"}})));
  CHECK(reference_key(case_of({{"dtype", "f32"}})) != reference_key(case_of({{"dtype", "bf16"}})));
  CHECK(reference_key(case_of({{"dtype", "f32"}}, "shared")) ==
        reference_key(case_of({{"dtype", "bf16"}}, "shared")));
  CHECK(reference_key(case_of({{"dtype", "f32"}}, "shared")) != reference_key(case_of({{"dtype", "f32"}})));
  Case seeded = case_of({});
  seeded.inputs.seed = 8;
  CHECK(reference_key(seeded) != reference_key(case_of({})));
  CHECK(reference_key(case_of({{"z", true}})) != reference_key(case_of({})));
}

TEST_CASE("cases share no reference whose bounds depend on their dtype") {
  const auto key = [](const OpSpec& op, const char* dtype, Axes axes) {
    axes.emplace("dtype", std::string(dtype));
    Case made = make_case(&op == &ssd_chunk_scan_fwd() ? ssd_problem(std::move(axes), op)
                                                       : scan_problem(std::move(axes), op));
    made.inputs.values = "shared";
    return reference_key(made);
  };
  // dz may use a y that was rounded to the dtype.
  const OpSpec& gradients = selective_scan_bwd();
  CHECK(key(gradients, "f32", {{"z", true}}) != key(gradients, "bf16", {{"z", true}}));
  CHECK(key(gradients, "f16", {{"z", true}}) != key(gradients, "bf16", {{"z", true}}));
  CHECK(key(gradients, "f32", {{"z", false}}) == key(gradients, "bf16", {{"z", false}}));
  // Products round f16's subnormals.
  CHECK(key(ssd_chunk_scan_fwd(), "f32", {}) != key(ssd_chunk_scan_fwd(), "f16", {}));
  CHECK(key(ssd_chunk_scan_fwd(), "f32", {}) == key(ssd_chunk_scan_fwd(), "bf16", {}));
}

TEST_CASE("an operation without a layout has a reference key too") {
  const auto key = [](const char* dtype, const char* values) {
    Case made = make_case(Problem(
        linear_scan(), {{"dtype", dtype}, {"batch", size(1)}, {"seqlen", size(4)}, {"dim", size(3)}}));
    made.inputs.values = values;
    return reference_key(made);
  };
  CHECK(key("f32", "native") != key("bf16", "native"));
  CHECK(key("f32", "shared") == key("bf16", "shared"));
}

TEST_CASE("cases that share a reference follow each other, in file order otherwise") {
  const Plan plan = make_plan({case_of({{"seqlen", size(5)}}), case_of({{"seqlen", size(6)}}),
                               case_of({{"seqlen", size(5)}, {"layout", "bld"}})},
                              {list_devices().front()}, {});
  REQUIRE(plan.cases.size() == 3);
  CHECK(plan.cases[0].the_case.problem.size("seqlen") == 5);
  CHECK(plan.cases[1].the_case.problem.choice("layout") == "bld");
  CHECK(plan.cases[2].the_case.problem.size("seqlen") == 6);
}

TEST_CASE("an implementation that is known to fail runs only when it is asked for") {
  Implementation shown = find_implementation("selective_scan_fwd", "cpu-scalar");
  shown.name = "test-known-failure";
  shown.known_failure = "breaks, to show it";
  static const Registration registration{shown};
  const auto skip_with = [](const std::string& impl) {
    Selection selection;
    selection.impl = impl;
    const Plan plan = make_plan({case_of({})}, {list_devices().front()}, selection);
    for (const auto& job : plan.cases.at(0).jobs)
      if (job.implementation->name == "test-known-failure") return job.skip;
    throw std::logic_error("not in the plan");
  };
  REQUIRE(skip_with(""));
  CHECK(skip_with("")->cause == Cause::only_when_named);
  CHECK(skip_with("")->reason == "runs only when --impl or a config names it: breaks, to show it");
  CHECK_FALSE(skip_with("test-*"));
  CHECK_FALSE(skip_with("cpu-simd,test-known-failure"));
}

TEST_CASE("an implementation kept for comparison runs when --impl or the sweep names it") {
  Implementation kept = find_implementation("selective_scan_fwd", "cpu-scalar");
  kept.name = "test-kept";
  kept.only_when_named = true;
  static const Registration registration{kept};
  const auto runs = [](const std::string& impl, std::vector<std::string> of_sweep) {
    Selection selection;
    selection.impl = impl;
    Case made = case_of({});
    made.impl = std::move(of_sweep);
    const Plan plan = make_plan({made}, {list_devices().front()}, selection);
    if (plan.cases.empty()) return "not in the plan";
    for (const auto& job : plan.cases.front().jobs)
      if (job.implementation->name == "test-kept") return job.skip ? "skipped" : "runs";
    return "not in the plan";
  };
  CHECK(runs("", {}) == std::string("skipped"));
  CHECK(runs("test-kept", {}) == std::string("runs"));
  CHECK(runs("", {"cpu-simd", "test-*"}) == std::string("runs"));
  CHECK(runs("", {"cpu-*"}) == std::string("not in the plan"));
  CHECK(runs("cpu-simd", {"test-*"}) == std::string("not in the plan"));
}

TEST_CASE("memory need counts inputs, outputs, the reference and the judged copies") {
  Selection scalar;
  scalar.impl = "cpu-scalar";
  const Plan plan =
      make_plan({case_of({{"dim", size(10)}, {"seqlen", size(100)}})}, {list_devices().front()}, scalar);
  // f32: u and delta of 1000 elements, B and C of 100, A of 10; out of 1000, last_state of 10.
  const std::size_t inputs = 8840;
  const std::size_t outputs = 4040;
  const std::size_t reference = 16120;  // 8 + 4 bytes each, and 4 of out for what decays do
  CHECK(memory_need(plan.cases[0], plan, true).host == inputs + 3 * outputs + reference);
  CHECK(memory_need(plan.cases[0], plan, false).host == inputs + 3 * outputs);
  CHECK(memory_need(plan.cases[0], plan, true).device == 0);
}

TEST_CASE("rank 0 has the whole problem beside all parts, or beside its own where ranks have own devices") {
  DeviceInfo team = list_devices().front();
  team.ranks = 2;
  Selection two_passes;
  two_passes.impl = "cpu-twopass";
  const auto bytes_on = [&](const DeviceInfo& device) {
    const Plan plan = make_plan({case_of({{"dim", size(10)}, {"seqlen", size(192)}})}, {device}, two_passes);
    return bytes_of_ranks(plan.cases.at(0).jobs.at(0), plan, plan.cases[0].the_case.problem);
  };
  const std::size_t all = bytes_on(team);
  team.has_device_per_rank = true;
  const std::size_t most = bytes_on(team);
  CHECK(most < all);
  CHECK(all < 2 * most);  // shards of 64 and 128 steps
}

TEST_CASE("the reference needs at most 1.5 times the fp64 bytes of inputs and outputs") {
  const Problem problem = scan_problem({{"batch", size(8)},
                                        {"dim", size(2048)},
                                        {"seqlen", size(2048)},
                                        {"dstate", size(16)},
                                        {"z", true},
                                        {"D", true}});
  double elements = 0;
  for (const auto& tensor : problem.tensors()) elements += static_cast<double>(element_count(tensor.shape));
  const double held = static_cast<double>(reference_bytes(problem)) + tensor_bytes(problem);
  CHECK(held <= 1.5 * 8 * elements);
}

TEST_CASE("the backward reference counts its checkpoints") {
  const auto problem = [](std::int64_t seqlen) {
    return scan_problem({{"dim", size(64)}, {"seqlen", size(seqlen)}, {"dstate", size(16)}},
                        selective_scan_bwd());
  };
  const auto working = [&](std::int64_t seqlen) {  // beside the outputs: fp64 with a bound
    return reference_bytes(problem(seqlen)) -
           output_bytes(problem(seqlen), [](const TensorSpec&) { return false; });
  };
  // Every 256 steps the states with magnitude and error, and two numbers of the second bound: 40 bytes each.
  CHECK(working(131072) - working(65536) == 65536 / 256 * 64 * 16 * 40);
}
