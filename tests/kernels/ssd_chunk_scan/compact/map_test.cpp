#include "kernels/ssd_chunk_scan/compact/map.h"

#include "catch.h"

using namespace ssmbench;

TEST_CASE("small SSD kernels: the parts of the workspace follow each other") {
  for (const std::int64_t seqlen : {1, 32, 33, 1000})
    for (const std::int64_t dstate : {1, 32, 33, 256}) {
      CAPTURE(seqlen, dstate);
      const CompactPlan plan = plan_compact(2, seqlen, 3, 40, dstate);
      const auto rows = static_cast<std::size_t>(2 * ((seqlen + 31) / 32) * 3);
      const auto tiles = rows * 2 * static_cast<std::size_t>((dstate + 31) / 32);
      CHECK(plan.states >= plan.steps + rows * 5 * 32 * sizeof(float));
      CHECK(plan.bytes >= plan.states + tiles * 32 * 32 * sizeof(float));
      // Asynchronous copies take 16 bytes.
      CHECK(plan.steps % 16 == 0);
      CHECK(plan.states % 16 == 0);
    }
}
