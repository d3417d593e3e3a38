#include "kernels/ssd_chunk_scan/hopper/halves_plan.h"

#include "catch.h"

using namespace ssmbench::ssd_hopper;

TEST_CASE(
    "hopper: items of a problem in halves are in two parts at least, and more only where all run at once") {
  for (const std::int64_t seqlen : {65, 640, 16384})
    for (const std::int64_t nheads : {1, 7, 80, 300}) {
      const Plan plan = halves_plan_for({1, seqlen, nheads, 1, 64}, 132, 2);
      CHECK(plan.parts >= 2);
      CHECK(plan.parts <= plan.chunks.value);
      CHECK((plan.parts == 2 || plan.blocks <= 132));
    }
}

TEST_CASE("hopper: with a part more, the parts that exist are as without it, and none of them is the last") {
  for (const std::int64_t seqlen : {65, 640, 4096})
    for (const std::int64_t nheads : {1, 7, 80}) {
      const Plan plan = halves_plan_for({2, seqlen, nheads, 1, 64}, 132, 2);
      const Plan longer = with_part_more(plan);
      REQUIRE(longer.blocks == plan.items * (plan.parts + 1));
      for (int item = 0; item < plan.items; ++item)
        for (int part = 0; part <= plan.parts; ++part) {
          const int block = item * longer.parts + part;
          REQUIRE(longer.segments(block) == 1);
          const Segment segment = longer.segment(block, 0);
          CHECK(segment.item == item);
          CHECK((segment.end == longer.chunks.value) == (part == plan.parts));
          if (part == plan.parts) continue;
          const Segment without = plan.segment(item * plan.parts + part, 0);
          CHECK(segment.first == without.first);
          CHECK(segment.end == without.end);
        }
    }
}
