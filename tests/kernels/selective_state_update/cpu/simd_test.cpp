// cpu-step by the code for each instruction set.

#include "catch.h"
#include "support/simd_targets.h"
#include "support/step_problem.h"
#include "support/verdicts.h"

using namespace ssmbench;
using namespace ssmbench::test;

TEST_CASE("cpu-step agrees with the reference on every instruction set") {
  std::vector<Problem> problems;
  for (const char* dtype : {"f32", "f16", "bf16"})
    for (const std::int64_t dstate : {1, 7, 16, 33, 256}) {
      const Axes axes{{"dtype", dtype},      {"state_dtype", dtype}, {"batch", size(3)}, {"dstate", dstate},
                      {"tokens", size(2)},   {"slots", size(9)},     {"store", "each"},  {"z", true},
                      {"dt_softplus", true}, {"intermediate", true}, {"D", true}};
      Axes channels{{"dim", size(5)}};
      channels.merge(Axes(axes));
      problems.push_back(mamba1_step(channels));
      Axes heads{{"nheads", size(2)}, {"headdim", size(3)}};
      heads.merge(Axes(axes));
      problems.push_back(mamba2_step(heads));
      for (const char* state_dtype : {"i8", "i16", "e4m3", "f16"})
        problems.push_back(problems.back().with({{"state_dtype", state_dtype},
                                                 {"rounding", dstate == 16 ? "nearest" : "stochastic"},
                                                 {"intermediate", false}}));
    }
  on_every_target([&](const char* target) {
    INFO(target);
    auto [passed, skipped, failures] = verdicts_of(problems, list_devices().front(), "mamba");
    CHECK(failures == "");
    CHECK(passed["cpu-step"] == problems.size());
  });
}
