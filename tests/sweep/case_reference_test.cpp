// A reference in parts judges as the same in memory does.

#include "sweep/case_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "catch.h"
#include "inputs/inputs.h"
#include "model/implementation.h"
#include "support/find_implementation.h"
#include "support/host_tensors.h"
#include "support/run_plan.h"
#include "support/scan_problem.h"
#include "support/ssd_problem.h"
#include "sweep/prepared_run.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

struct Judged {
  std::vector<OutputComparison> in_memory, in_parts;
};

/// What is said of an implementation's outputs, after `spoil`.
Judged judge(const Problem& problem, const std::string& name,
             const std::function<void(std::vector<HostTensor>&)>& spoil) {
  const Case the_case = make_case(problem);
  const auto inputs = generate_inputs(problem, the_case.inputs, never_stop);
  const auto device = open_device(DeviceKind::cpu);
  const Implementation& implementation = find_implementation(problem.op().name, name);
  auto outputs = run_once(*device, implementation, problem, inputs);
  spoil(outputs);
  std::vector<const HostTensor*> all;
  for (const auto& output : outputs) all.push_back(&output);
  const CaseReference in_memory(problem, inputs, reference_bytes(problem), never_stop);
  const CaseReference in_parts(problem, inputs, 1, never_stop);
  REQUIRE(in_memory.in_memory() != nullptr);
  REQUIRE(in_parts.in_memory() == nullptr);
  const Arithmetic arithmetic = implementation.arithmetic(problem.dtype());
  return {in_memory.compare(all, outputs, arithmetic, the_case),
          in_parts.compare(all, outputs, arithmetic, the_case)};
}

void check_alike(const Judged& judged) {
  REQUIRE(judged.in_memory.size() == judged.in_parts.size());
  for (std::size_t i = 0; i < judged.in_memory.size(); ++i) {
    const OutputComparison& whole = judged.in_memory[i];
    const OutputComparison& parts = judged.in_parts[i];
    CHECK(parts.passed() == whole.passed());
    CHECK(parts.judged == whole.judged);
    CHECK(parts.nonfinite == whole.nonfinite);
    CHECK(parts.tolerance_ratio == whole.tolerance_ratio);
    CHECK(parts.max_abs == whole.max_abs);
    CHECK(parts.max_ulp == whole.max_ulp);
    CHECK(parts.rel_l2 == Approx(whole.rel_l2).epsilon(1e-12));
    CHECK(parts.rms_ratio == Approx(whole.rms_ratio).epsilon(0.01));
    CHECK(parts.worst_index == whole.worst_index);
    CHECK(parts.worst_expected == whole.worst_expected);
    CHECK((parts.worst_got == whole.worst_got || (std::isnan(parts.worst_got) && whole.nonfinite > 0)));
    REQUIRE(parts.over_time.size() == whole.over_time.size());
    for (std::size_t span = 0; span < whole.over_time.size(); ++span) {
      CHECK(parts.over_time[span].first == whole.over_time[span].first);
      CHECK(parts.over_time[span].rms == Approx(whole.over_time[span].rms).epsilon(1e-12));
    }
  }
}

Problem ssd_gradients(const char* dtype) {
  return ssd_problem({{"dtype", dtype},
                      {"batch", size(2)},
                      {"seqlen", size(200)},
                      {"nheads", size(6)},
                      {"headdim", size(8)},
                      {"dstate", size(16)},
                      {"groups", size(2)},
                      {"z", true}},
                     ssd_chunk_scan_bwd());
}

HostTensor& named(std::vector<HostTensor>& outputs, const std::string& name) {
  return *std::ranges::find(outputs, name, [](const HostTensor& output) { return output.spec.name; });
}

}  // namespace

TEST_CASE("what is right passes in parts as in memory, with the same numbers") {
  const auto nothing = [](std::vector<HostTensor>&) {};
  for (const char* dtype : {"f32", "bf16"}) {
    check_alike(judge(ssd_gradients(dtype), "cpu-scalar", nothing));
    for (const char* layout : {"bdl", "bld"})
      check_alike(judge(scan_problem({{"dtype", dtype},
                                      {"layout", layout},
                                      {"batch", size(2)},
                                      {"dim", size(70)},
                                      {"seqlen", size(300)},
                                      {"dstate", size(4)}}),
                        "cpu-scalar", nothing));
  }
  check_alike(
      judge(scan_problem({{"A", "complex"}, {"dim", size(40)}, {"seqlen", size(90)}, {"dstate", size(4)}}),
            "cpu-scalar", nothing));
}

TEST_CASE("an element that is wrong is found in whichever part it is, and named") {
  for (const char* name : {"dx", "dB", "dA", "ddt"})
    for (const bool is_last : {false, true}) {
      INFO(name);
      const auto spoil = [&](std::vector<HostTensor>& outputs) {
        HostTensor& output = named(outputs, name);
        auto* values = static_cast<float*>(output.buffer.data());
        float& value = values[is_last ? element_count(output.spec.shape) - 1 : 0];
        value = value * 2 + 1;
      };
      const Judged judged = judge(ssd_gradients("f32"), "cpu-scalar", spoil);
      check_alike(judged);
      CHECK(std::ranges::count_if(judged.in_parts, [](const auto& one) { return !one.passed(); }) == 1);
    }
}

TEST_CASE("numbers that are not finite are counted over all parts, and the first one is named") {
  const auto spoil = [](std::vector<HostTensor>& outputs) {
    HostTensor& dx = named(outputs, "dx");
    auto* values = static_cast<float*>(dx.buffer.data());
    values[5 * 8 + 3] = std::numeric_limits<float>::quiet_NaN();     // the last head of step 0
    values[6 * 8 * 7 + 2] = std::numeric_limits<float>::infinity();  // the first head of step 7
  };
  const Judged judged = judge(ssd_gradients("f32"), "cpu-scalar", spoil);
  check_alike(judged);
}

TEST_CASE("a run whose references are in parts has the results of one that has them in memory") {
  const std::vector<Case> cases{make_case(ssd_gradients("bf16"))};
  Selection selection;
  selection.impl = "cpu-*";
  const Plan plan = make_plan(cases, {list_devices().front()}, selection);
  RunnerOptions options;
  const auto in_memory = run_plan(plan, options);
  options.reference_bytes = 1;
  const auto in_parts = run_plan(plan, options);
  REQUIRE(in_memory.size() == in_parts.size());
  for (std::size_t i = 0; i < in_memory.size(); ++i) {
    CHECK(in_parts[i].status == in_memory[i].status);
    for (const auto& [name, output] : in_memory[i].outputs)
      CHECK(in_parts[i].outputs.at(name).tolerance_ratio == output.tolerance_ratio);
  }
  CHECK(memory_need(plan.cases[0], plan, true, 1).host < memory_need(plan.cases[0], plan, true).host);
}
