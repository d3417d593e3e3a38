#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <optional>
#include <string>

#include "kernels/ssd_chunk_scan/args.h"
#include "kernels/ssd_chunk_scan/chunk_grid.h"

// The small kernels of cuda-chunked-f32 on the host.

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
  WorkspaceEnd end;
  plan.steps = end.place(plan.rows * kStepRows<CompactF32> * kSide<CompactF32>, sizeof(float));
  plan.states = end.place(plan.tiles() * kTileElements<CompactF32>, sizeof(CompactF32));
  plan.bytes = end.bytes;
  return plan;
}

/// Why a problem is too large; nothing when it is not.
std::optional<std::string> compact_unsupported(const Problem& problem);
std::size_t compact_workspace_bytes(const Problem& problem);

/// Throws ContractError for what is unsupported.
Launch bind_compact(const Problem& problem, const TensorSet& tensors, void* workspace);

}  // namespace ssmbench
