#include <algorithm>

#include "catch.h"
#include "config/config.h"
#include "support/run_plan.h"

using namespace ssmbench;
using namespace ssmbench::test;

TEST_CASE("cpu-scalar's gradients are within tolerance on all of configs/gradients that it supports") {
  const auto results = run_cases(load_config(SSMBENCH_SOURCE_DIR "/configs/gradients.json", {}, false));
  std::int64_t passed = 0;
  for (const auto& result : results) {
    INFO(result.the_case.id() << " " << result.impl << ": " << result.reason);
    const bool known = result.status == Status::pass || result.status == Status::skip;
    CHECK(known);
    if (result.status == Status::pass) {
      ++passed;
      CHECK(result.outputs.size() >= 5);
    }
  }
  CHECK(passed >= 10);
}
