#include "kernels/ssd_chunk_scan/recurrent_bwd_map.h"

#include <vector>

#include "catch.h"

using namespace ssmbench;

TEST_CASE("recurrent SSD gradients: threads of a block cover the states of a tile") {
  for (const std::int64_t headdim : {1, 63, 64, 65, 256})
    for (const std::int64_t dstate : {1, 32, 33, 64, 65, 128, 129, 256}) {
      CAPTURE(headdim, dstate);
      const auto plan = plan_recurrent_bwd(1, 10, 1, headdim, dstate, 1, 0);
      CHECK(plan.columns * 32 >= dstate);
      CHECK((plan.columns == 1 || plan.columns * 16 < dstate));
      CHECK(plan.states() <= 32);  // registers
      CHECK(plan.tiles * plan.tile_rows() >= headdim);
      CHECK((plan.tiles - 1) * plan.tile_rows() < headdim);
    }
}

TEST_CASE("recurrent SSD gradients: segments cover the steps, and are as long as there are many") {
  for (const std::int64_t seqlen : {1, 2, 3, 4, 5, 63, 64, 65, 4096, 4097, 65536}) {
    CAPTURE(seqlen);
    const auto plan = plan_recurrent_bwd(1, seqlen, 1, 1, 1, 1, 0);
    CHECK(plan.segments * plan.segment >= seqlen);
    CHECK((plan.segments - 1) * plan.segment < seqlen);
    CHECK(plan.segments <= plan.segment);
  }
}

TEST_CASE(
    "recurrent SSD gradients: slices cover a group's heads; the parts of the workspace follow each other") {
  for (const std::int64_t batch : {1, 8, 200})
    for (const std::int64_t nheads : {2, 6, 24, 80})
      for (const std::int64_t groups : {std::int64_t{1}, std::int64_t{2}, nheads}) {
        CAPTURE(batch, nheads, groups);
        const auto plan = plan_recurrent_bwd(batch, 100, nheads, 64, 40, groups, 3);
        const std::int64_t heads = nheads / groups;
        CHECK(plan.slices * plan.per_slice >= heads);
        CHECK((plan.slices - 1) * plan.per_slice < heads);
        CHECK(plan.blocks == batch * groups * plan.slices);
        const std::int64_t saved = 256 * plan.states();
        CHECK(plan.history == plan.checkpoints + plan.blocks * plan.segments * saved);
        CHECK(plan.steps == plan.history + plan.blocks * plan.segment * saved);
        CHECK(plan.head_sums == plan.steps + plan.blocks * 2 * 100);
        CHECK(plan.projections == plan.head_sums + batch * nheads * 5);
        CHECK(plan.floats == plan.projections + plan.slices * 2 * batch * 100 * groups * 40);
      }
}
