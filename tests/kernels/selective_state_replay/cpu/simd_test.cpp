// cpu-simd of replays by the code for each instruction set.

#include "catch.h"
#include "support/replay_boundaries.h"
#include "support/simd_targets.h"
#include "support/verdicts.h"

using namespace ssmbench;
using namespace ssmbench::test;

TEST_CASE("cpu-simd of selective_state_replay agrees with the reference on every instruction set") {
  std::vector<Problem> problems;
  const auto all = replay_boundaries();
  for (std::size_t i = 0; i < all.size(); i += 5) problems.push_back(all[i]);
  on_every_target([&](const char* target) {
    INFO(target);
    auto [passed, skipped, failures] = verdicts_of(problems, list_devices().front(), "mamba");
    CHECK(failures == "");
    CHECK(passed["cpu-simd"] == problems.size());
  });
}
