#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/host_device.h"
#include "kernels/common/index_math.h"

// How cuda-recurrent cuts the backward SSD scan up, and where its workspace lies. Host and device, so that
// the CPU tests cover it.

namespace ssmbench {

inline constexpr int kRecurrentWarps = 8;
inline constexpr int kRecurrentThreads = 32 * kRecurrentWarps;

/// Blocks that are wanted before one takes several heads: each has workspace of its own.
inline constexpr std::int64_t kRecurrentWantedBlocks = 128;

struct RecurrentBwdPlan {
  int columns;  ///< states n of a thread: lane, lane + 32, …: 1, 2, 4 or 8
  int rows;     ///< channels p of a thread: warp, warp + 8, …: as many as leave its states in registers
  int tiles;    ///< of P, each of 8·rows channels; a block takes them one after the other
  std::int64_t slices;     ///< a group's heads are shared out to so many blocks
  std::int64_t per_slice;  ///< heads of a slice; the last may have fewer
  std::int64_t segment;    ///< steps between checkpoints, about √L: as many as there are checkpoints
  std::int64_t segments;
  std::int64_t blocks;
  int sums;  ///< per head, f32 sums over time: dA, ddt_bias, then dD

  // Offsets into the workspace, in floats.
  std::int64_t checkpoints;  ///< [block][segment][state of the thread][thread]
  std::int64_t history;      ///< [block][step of a segment][state of the thread][thread]
  std::int64_t steps;        ///< [block][da, direct part of dΔ][L]
  std::int64_t head_sums;    ///< [batch][head][sums]
  std::int64_t projections;  ///< [slice][dB, dC][B, L, G, N]
  std::int64_t floats;

  SSMBENCH_HD constexpr int states() const { return rows * columns; }
  SSMBENCH_HD constexpr int tile_rows() const { return rows * kRecurrentWarps; }
};

constexpr RecurrentBwdPlan plan_recurrent_bwd(std::int64_t batch, std::int64_t seqlen, std::int64_t nheads,
                                              std::int64_t headdim, std::int64_t dstate, std::int64_t groups,
                                              int skip_sums) {
  RecurrentBwdPlan plan{};
  plan.columns = 1;
  while (plan.columns * 32 < dstate) plan.columns *= 2;
  plan.rows = plan.columns == 8 ? 4 : 8;
  plan.tiles = static_cast<int>(ceil_div(headdim, plan.tile_rows()));
  const std::int64_t heads = nheads / groups;
  const std::int64_t wanted = std::clamp<std::int64_t>(kRecurrentWantedBlocks / (batch * groups), 1, heads);
  plan.per_slice = ceil_div(heads, wanted);
  plan.slices = ceil_div(heads, plan.per_slice);
  plan.segment = 1;
  while (plan.segment * plan.segment < seqlen) plan.segment *= 2;
  plan.segments = ceil_div(seqlen, plan.segment);
  plan.blocks = batch * groups * plan.slices;
  plan.sums = 2 + skip_sums;

  const std::int64_t states = static_cast<std::int64_t>(plan.states()) * kRecurrentThreads;
  plan.checkpoints = 0;
  plan.history = plan.checkpoints + plan.blocks * plan.segments * states;
  plan.steps = plan.history + plan.blocks * plan.segment * states;
  plan.head_sums = plan.steps + plan.blocks * 2 * seqlen;
  plan.projections = plan.head_sums + batch * nheads * plan.sums;
  plan.floats = plan.projections + plan.slices * 2 * batch * seqlen * groups * dstate;
  return plan;
}

}  // namespace ssmbench
