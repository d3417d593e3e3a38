// What cuda-step takes, and its words where it does not.

#include <algorithm>

#include "catch.h"
#include "support/find_implementation.h"
#include "support/step_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

TEST_CASE("cuda-step says what it does not take") {
  if (std::ranges::find(implementations(), "cuda-step", &Implementation::name) == implementations().end()) {
    WARN("skipped: built without CUDA");
    return;
  }
  const auto reason = [](const Problem& problem) {
    return find_implementation("selective_state_update", "cuda-step").unsupported(problem);
  };
  const Problem step = mamba2_step({{"dtype", "f32"}, {"dstate", size(16)}});
  for (const char* dtype : {"f32", "f16", "bf16"})
    for (const char* state_dtype : {"f32", "f16", "bf16", "i8", "i16", "e4m3"})
      CHECK(reason(step.with({{"dtype", dtype}, {"state_dtype", state_dtype}})) == std::nullopt);
  const Axes stochastic{{"state_dtype", "f16"}, {"rounding", "stochastic"}};
  CHECK(reason(step.with(stochastic)) == std::nullopt);
  CHECK(reason(step.with({{"batch", size(65536)}})) ==
        "needs at most 65535 blocks in an axis of the grid: one per head, and sequence");
  CHECK(reason(step.with({{"state_dtype", "i8"}, {"nheads", size(8388608)}, {"headdim", size(256)}})) ==
        "needs at most 2147483647 rows of such states in a sequence");
  const Problem wide = mamba1_step({{"dtype", "f32"}, {"dim", size(67108863)}, {"dstate", size(16)}});
  CHECK(reason(wide) == std::nullopt);
  CHECK(reason(wide.with({{"dim", size(67108864)}})) == "needs slots of at most 4294967295 bytes in f32");
}
