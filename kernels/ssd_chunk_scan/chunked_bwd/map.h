#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/host_device.h"
#include "kernels/common/index_math.h"

// How cuda-chunked cuts the backward SSD scan up, and where its workspace lies. Host and device, so that the
// CPU tests cover it.

namespace ssmbench {

/// Side of the square tiles that all matrix products are made of, and steps of a chunk.
inline constexpr int kSsdTile = 64;
inline constexpr int kSsdTileElements = kSsdTile * kSsdTile;

// What the steps of one (batch, chunk, head) need to know of time: four rows of kSsdTile floats. Steps past
// the sequence's end have Δ = 0 and the cumulated decay of the last step.
inline constexpr int kStepDelta = 0;  ///< Δ_t
inline constexpr int kStepDecay = 1;  ///< Σ Δ_s·A over the chunk's steps s ≤ t
inline constexpr int kStepEnter = 2;  ///< e^decay_t, the weight of the state that enters; 0 behind a reset
/// e^(decay_last − decay_t), the weight of step t in the state that leaves; 0 ahead of a reset
inline constexpr int kStepLeave = 3;
inline constexpr int kStepRows = 4;

// What the gradient kernel leaves of a row's steps for ddt and dA: three rows of kSsdTile floats.
/// What reaches step t from before it, less what leaves it: to be summed over t and later.
inline constexpr int kFlowOut = 0;
/// What leaves step t for the state behind the chunk: to be summed over steps before t.
inline constexpr int kFlowIn = 1;
inline constexpr int kFlowDirect = 2;  ///< x·(G·B), dΔ but for the decay
inline constexpr int kFlowRows = 3;

/// Of a tile of states and one of gradients of states, in f16: what undoes the powers of two that their
/// images are scaled by. 16 bytes, of which the last 8 are unused, so that one asynchronous copy fetches
/// them.
inline constexpr int kUnscaleState = 0;
inline constexpr int kUnscaleGradient = 1;
inline constexpr int kUnscales = 4;

/// Blocks of the gradient kernel that are wanted: some four waves of the largest GPUs.
inline constexpr std::int64_t kSsdWantedBlocks = 512;

struct ChunkedBwdPlan {
  std::int64_t chunks;     ///< of kSsdTile steps, per sequence
  int headdim_tiles;       ///< P in tiles
  int dstate_tiles;        ///< N in tiles
  std::int64_t slices;     ///< a group's heads are shared out to so many blocks
  std::int64_t per_slice;  ///< heads of a slice; the last may have fewer
  int sums;                ///< per head, f32 sums over batch and time: dA, ddt_bias, then dD
  std::int64_t rows;       ///< batch × chunks × heads

  // Byte offsets into the workspace.
  std::size_t steps;    ///< [row][kStepRows][step] f32
  std::size_t states;   ///< [row][headdim tile][dstate tile] tiles of io dtype: the states entering the chunk
  std::size_t dstates;  ///< the same of the gradients of the states leaving the chunk
  std::size_t unscales;     ///< [row][headdim tile][dstate tile][kUnscales] f32; only where they are scaled
  std::size_t flows;        ///< [row][kFlowRows][step] f32
  std::size_t head_sums;    ///< [row][sums] f32
  std::size_t projections;  ///< [slice][dB, dC][B, L, G, N] f32; only where there are several slices
  std::size_t bytes;

  SSMBENCH_HD constexpr std::int64_t row(std::int64_t b, std::int64_t chunk, std::int64_t head,
                                         std::int64_t nheads) const {
    return (b * chunks + chunk) * nheads + head;
  }
  SSMBENCH_HD constexpr std::int64_t state_tile(std::int64_t row, int p_tile, int n_tile) const {
    return (row * headdim_tiles + p_tile) * dstate_tiles + n_tile;
  }
};

/// `scaled_states`: whether images of states are scaled into the range of the io dtype.
/// The slices depend on the shape alone: results are bitwise the same on every GPU with as many cores or not.
constexpr ChunkedBwdPlan plan_chunked_bwd(std::int64_t batch, std::int64_t seqlen, std::int64_t nheads,
                                          std::int64_t headdim, std::int64_t dstate, std::int64_t groups,
                                          int skip_sums, std::size_t io_bytes, bool scaled_states) {
  ChunkedBwdPlan plan{};
  plan.chunks = ceil_div(seqlen, kSsdTile);
  plan.headdim_tiles = static_cast<int>(ceil_div(headdim, kSsdTile));
  plan.dstate_tiles = static_cast<int>(ceil_div(dstate, kSsdTile));
  const std::int64_t heads = nheads / groups;
  const std::int64_t wanted =
      std::clamp<std::int64_t>(kSsdWantedBlocks / (batch * plan.chunks * groups), 1, heads);
  plan.per_slice = ceil_div(heads, wanted);
  plan.slices = ceil_div(heads, plan.per_slice);
  plan.sums = 2 + skip_sums;
  plan.rows = batch * plan.chunks * nheads;

  std::size_t end = 0;
  const auto place = [&end](std::int64_t elements, std::size_t element_bytes) {
    constexpr std::size_t kAlign = 256;
    const std::size_t start = end;
    end += (static_cast<std::size_t>(elements) * element_bytes + kAlign - 1) / kAlign * kAlign;
    return start;
  };
  const std::int64_t tiles = plan.rows * plan.headdim_tiles * plan.dstate_tiles;
  plan.steps = place(plan.rows * kStepRows * kSsdTile, sizeof(float));
  plan.states = place(tiles * kSsdTileElements, io_bytes);
  plan.dstates = place(tiles * kSsdTileElements, io_bytes);
  plan.unscales = place(scaled_states ? tiles * kUnscales : 0, sizeof(float));
  plan.flows = place(plan.rows * kFlowRows * kSsdTile, sizeof(float));
  plan.head_sums = place(plan.rows * plan.sums, sizeof(float));
  plan.projections =
      place(plan.slices > 1 ? plan.slices * 2 * batch * seqlen * groups * dstate : 0, sizeof(float));
  plan.bytes = end;
  return plan;
}

/// Element of a tile in shared memory and in the workspace. Rows are 16-byte parts whose order is turned by
/// the row, so that eight parts of one column lie in different banks.
template <class T>
SSMBENCH_HD constexpr int tile_offset(int row, int column) {
  constexpr int kPart = 16 / sizeof(T);
  return row * kSsdTile + ((column / kPart ^ (row & 7)) * kPart) + column % kPart;
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
