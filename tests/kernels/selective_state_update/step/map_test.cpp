// Every state of every row is held by exactly one thread, at every kind of size.

#include "kernels/selective_state_update/step/map.h"

#include <vector>

#include "catch.h"

using namespace ssmbench;

namespace {

/// How often the threads of a section hold each of its states.
std::vector<int> times_held(const StepPlan& plan, int dstate) {
  std::vector<int> held(plan.section_rows * dstate, 0);
  const int width = plan.shape == RowShape::scalars ? 1 : 4;
  for (std::int64_t tile = 0; tile < plan.blocks_per_section * plan.warps; ++tile)
    for (int thread = 0; thread < kStepWarp; ++thread)
      for (int r = 0; r < rows_per_thread(plan.shape, plan.many); ++r) {
        const std::int64_t row =
            tile * plan.rows_per_warp() + (thread >> plan.lanes_log2) + r * plan.rows_per_pass();
        if (row >= plan.section_rows) continue;
        for (int i = 0; i < states_per_row(plan.shape) / width; ++i) {
          const int n = state_of(plan.shape, thread & (plan.lanes() - 1), plan.lanes(), i);
          for (int j = 0; j < width; ++j)
            if (n < dstate) ++held[row * dstate + n + j];
        }
      }
  return held;
}

}  // namespace

TEST_CASE("cuda-step covers every state once") {
  for (int dstate = 1; dstate <= 256; ++dstate)
    for (const std::int64_t rows : {1, 3, 32, 64, 100, 256})
      for (const std::int64_t sections : {1, 100'000}) {  // few rows, many
        const StepPlan plan = plan_step(sections, rows, dstate);
        CAPTURE(dstate, rows, sections);
        REQUIRE(times_held(plan, dstate) == std::vector<int>(rows * dstate, 1));
        REQUIRE(plan.lanes() >= rows_per_thread(plan.shape, plan.many));
        REQUIRE(plan.warps >= 1);
        REQUIRE(plan.warps <= kStepMaxWarps);
      }
}

TEST_CASE(
    "cuda-step spreads a single sequence over the GPU and gives threads of large batches several rows") {
  // Mamba-1 130m and Mamba-2 370m, batch 1.
  for (const auto& [dstate, rows] : {std::pair{3, 17}, {16, 33}, {128, 5}, {256, 3}}) {
    CHECK(plan_step(1024, rows, dstate).many);  // the sizes of implementations_test.cpp
    CHECK(plan_step(1024, rows, dstate).rows_per_warp() == rows - 1);
  }
  CHECK(plan_step(1, 1536, 16).blocks() == 192);
  CHECK(plan_step(32, 64, 128).blocks() == 128);
  const StepPlan large = plan_step(512 * 32, 64, 128);
  CHECK(large.many);
  CHECK(large.rows_per_warp() == 4);
  CHECK(large.warps == kStepMaxWarps);
}
