#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/workspace.h"
#include "kernels/ssd_chunk_scan/chunk_grid.h"

// How cuda-chunked cuts the backward SSD scan up, and where its workspace lies. Host and device, so that the
// CPU tests cover it.

namespace ssmbench {

// What the gradient kernel leaves of a row's steps for ddt and dA: three rows of a float per step.
/// What reaches step t from before it, less what leaves it: to be summed over t and later.
inline constexpr int kFlowOut = 0;
/// What leaves step t for the state behind the chunk: to be summed over steps before t.
inline constexpr int kFlowIn = 1;
inline constexpr int kFlowDirect = 2;  ///< x·(G·B), dΔ but for the decay
inline constexpr int kFlowRows = 3;

/// Blocks of the gradient kernel that heads are sliced for: four waves of the largest GPUs, roughly.
inline constexpr std::int64_t kSsdWantedBlocks = 512;

struct ChunkedBwdPlan : ChunkGrid {
  std::int64_t slices;     ///< blocks that share a group's heads
  std::int64_t per_slice;  ///< heads of a slice; the last may have fewer
  int sums;                ///< per head, f32 sums over batch and time: dA, ddt_bias, then dD

  // Byte offsets into the workspace.
  std::size_t steps;        ///< [row][step row][step] f32
  std::size_t states;       ///< [row][headdim tile][dstate tile] tiles of T: the states entering the chunk
  std::size_t dstates;      ///< the same of the gradients of the states leaving the chunk
  std::size_t unscales;     ///< [row][headdim tile][dstate tile][kUnscales] f32; only where they are scaled
  std::size_t flows;        ///< [row][kFlowRows][step] f32
  std::size_t head_sums;    ///< [row][sums] f32
  std::size_t projections;  ///< [slice][dB, dC][B, L, G, N] f32; only where there are several slices
  std::size_t bytes;
};

/// The slices depend on the shape alone, so that results are bitwise the same on every GPU.
constexpr ChunkedBwdPlan plan_chunked_bwd(std::int64_t batch, std::int64_t seqlen, std::int64_t nheads,
                                          std::int64_t headdim, std::int64_t dstate, std::int64_t groups,
                                          int skip_sums, const TileKind& tiles) {
  ChunkedBwdPlan plan{};
  static_cast<ChunkGrid&>(plan) = chunk_grid(batch, seqlen, nheads, headdim, dstate, tiles.side);
  const std::int64_t heads = nheads / groups;
  const std::int64_t wanted =
      std::clamp<std::int64_t>(kSsdWantedBlocks / (batch * plan.chunks * groups), 1, heads);
  plan.per_slice = ceil_div(heads, wanted);
  plan.slices = ceil_div(heads, plan.per_slice);
  plan.sums = 2 + skip_sums;
  WorkspaceLayout layout;
  plan.steps = layout.take(plan.rows * tiles.step_rows * plan.side, sizeof(float));
  plan.states = layout.take(plan.tiles() * plan.side * plan.side, tiles.element_bytes);
  plan.dstates = layout.take(plan.tiles() * plan.side * plan.side, tiles.element_bytes);
  plan.unscales = layout.take(tiles.scaled_states ? plan.tiles() * kUnscales : 0, sizeof(float));
  plan.flows = layout.take(plan.rows * kFlowRows * plan.side, sizeof(float));
  plan.head_sums = layout.take(plan.rows * plan.sums, sizeof(float));
  plan.projections =
      layout.take(plan.slices > 1 ? plan.slices * 2 * batch * seqlen * groups * dstate : 0, sizeof(float));
  plan.bytes = layout.bytes();
  return plan;
}

/// The workspace as the kernels take it.
struct ChunkedBwdWorkspace {
  float* steps;
  void* states;
  void* dstates;
  float* unscales;
  float* flows;
  float* head_sums;
  float* projections;
};

}  // namespace ssmbench
