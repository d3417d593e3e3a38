#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/ssd_chunk_scan/hopper/plan.h"

// How cuda-hopper spreads a problem whose items are all in parts (halves.h). Host and device, as plan.h.

namespace ssmbench::ssd_hopper {

inline constexpr int kLeastParts = 2;

/// As plan_for, of plans with kLeastParts parts at least; more parts than that only where all blocks run at
/// once. The problem has as many chunks.
constexpr Plan halves_plan_for(const PlanSizes& of, int multiprocessors, int most_tiles) {
  Plan best = plan_with(of, multiprocessors, most_tiles, kLeastParts);
  for (int tiles = most_tiles; tiles >= 1; --tiles) {
    const Plan whole = plan_with(of, multiprocessors, tiles, 1);
    const int most = std::min(multiprocessors / whole.items, whole.chunks.value);
    for (int parts = kLeastParts; parts <= most; ++parts) {
      const Plan plan = plan_with(of, multiprocessors, tiles, parts);
      if (plan_cycles(of, plan) < plan_cycles(of, best)) best = plan;
    }
  }
  return best;
}

/// The plan with a part more in each item, of one chunk that does not exist. The pass of states, which leaves
/// out last parts, goes over all that do exist then.
constexpr Plan with_part_more(const Plan& plan) {
  Plan longer = plan;
  longer.chunks = Divisor(plan.chunks.value + 1);
  longer.parts = plan.parts + 1;
  longer.blocks = plan.items * longer.parts;
  longer.team = Divisor(longer.parts);
  longer.team_chunks = longer.chunks.value;
  return longer;
}

}  // namespace ssmbench::ssd_hopper
