#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/workspace.h"
#include "kernels/ssd_chunk_scan/chunk_grid.h"

// Where the workspace of the small kernels lies. Host and device, so that the CPU tests cover it.

namespace ssmbench {

struct CompactPlan : ChunkGrid {
  // Byte offsets into the workspace.
  std::size_t steps;   ///< [row][kStepRows][step] f32
  std::size_t states;  ///< [row][headdim tile][dstate tile] tiles: the states that enter the chunks
  std::size_t bytes;
};

constexpr CompactPlan plan_compact(std::int64_t batch, std::int64_t seqlen, std::int64_t nheads,
                                   std::int64_t headdim, std::int64_t dstate) {
  CompactPlan plan{};
  static_cast<ChunkGrid&>(plan) = chunk_grid(batch, seqlen, nheads, headdim, dstate, kSide<CompactF32>);
  WorkspaceLayout layout;
  plan.steps = layout.take(plan.rows * kStepRows<CompactF32> * kSide<CompactF32>, sizeof(float));
  plan.states = layout.take(plan.tiles() * kTileElements<CompactF32>, sizeof(CompactF32));
  plan.bytes = layout.bytes();
  return plan;
}

}  // namespace ssmbench
