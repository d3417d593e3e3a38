// Every registered implementation of selective_state_replay against the fp64 reference at the sizes where
// code changes path, and against decoding steps.

#include <string>
#include <vector>

#include "catch.h"
#include "study/consistency.h"
#include "support/host_tensors.h"
#include "support/replay_boundaries.h"
#include "support/replay_problem.h"
#include "support/run_plan.h"
#include "support/verdicts.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

const char* const kDtypes[] = {"f32", "f16", "bf16"};

}  // namespace

TEST_CASE("CPU implementations of selective_state_replay agree with the reference") {
  const auto all = replay_boundaries();
  for (const char* distribution : {"mamba", "trained"}) {
    auto [passed, skipped, failures] = verdicts_of(all, list_devices().front(), distribution);
    CHECK(failures == "");
    for (const char* name : {"cpu-scalar", "cpu-simd"}) CHECK(passed[name] == all.size());
  }
}

TEST_CASE("a replay agrees with decoding steps") {
  const Problem base = replay_problem({{"batch", size(5)},
                                       {"nheads", size(4)},
                                       {"headdim", size(3)},
                                       {"dstate", size(6)},
                                       {"groups", size(2)},
                                       {"D", true},
                                       {"z", true},
                                       {"dt_bias", true},
                                       {"dt_softplus", true}});
  for (const std::int64_t tokens : {1, 3})
    for (const char* dtype : kDtypes)
      for (const std::int64_t slots : {0, 8}) {
        Axes axes{
            {"tokens", tokens}, {"dtype", dtype}, {"state_dtype", dtype}, {"slots", slots}, {"flush", "all"}};
        if (slots > 0) axes["pads"] = size(3);
        const Problem problem = base.with(axes);
        INFO(problem.id());
        int results = 0;
        measure_consistency(
            {{problem.op().find_parts("steps")}, {make_case(problem)}}, {list_devices().front()}, {},
            never_stop, [&](const ConsistencyResult& result) {
              if (result.parts.starts_with("test-")) return;
              INFO(result.at_once.impl << " " << result.parts << " " << result.at_once.reason);
              CHECK(result.at_once.status == Status::pass);
              ++results;
            });
        CHECK(results == 2);
      }
}
