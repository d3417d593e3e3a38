#include "kernels/ssd_chunk_scan/recurrent_map.h"

#include <vector>

#include "catch.h"

using namespace ssmbench;

TEST_CASE("recurrent: every element of a head's state belongs to one thread") {
  for (const std::int64_t headdim : {1, 31, 32, 33, 64, 65, 128, 255, 256})
    for (const std::int64_t dstate : {1, 4, 31, 32, 33, 64, 65, 128, 129, 255, 256}) {
      INFO("headdim " << headdim << ", dstate " << dstate);
      const RecurrentPlan plan = plan_recurrent(headdim, dstate);
      CHECK(plan.threads() % 32 == 0);
      CHECK(plan.threads() <= kRecurrentMaxThreads);
      CHECK(plan.shared_bytes() <= 48 * 1024);
      CHECK((plan.blocks_per_head - 1) * plan.rows < headdim);  // no block without rows
      std::vector<int> visits(static_cast<std::size_t>(headdim * dstate));
      for (std::int64_t block = 0; block < plan.blocks_per_head; ++block)
        for (int thread = 0; thread < plan.threads(); ++thread)
          for (int i = 0; i < kRecurrentStates; ++i) {
            const std::int64_t p = block * plan.rows + plan.row_of(thread);
            const int n = plan.state_of(plan.lane_of(thread), i);
            if (p < headdim && n < dstate) ++visits.at(static_cast<std::size_t>(p * dstate + n));
          }
      CHECK(visits == std::vector<int>(visits.size(), 1));
    }
}

TEST_CASE("recurrent: one block holds a head of Mamba-2") {
  CHECK(plan_recurrent(64, 128).blocks_per_head == 1);
  CHECK(plan_recurrent(64, 128).threads() == 256);
}
