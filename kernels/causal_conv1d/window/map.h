#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/common/hardware.h"
#include "kernels/common/host_device.h"
#include "kernels/common/index_math.h"

// Which thread of cuda-window takes which channels and steps. Pure integer arithmetic: tests cover all of it
// without a GPU.

namespace ssmbench::window {

/// Taps that a kernel is compiled for; a filter of fewer leaves out the oldest.
SSMBENCH_HD constexpr int reach_of(int width) {
  return width <= 4 ? 4 : 8;
}

/// Steps whose loads a thread has in flight at once, where channels are last.
inline constexpr int kStepsAtOnce = 4;
inline constexpr int kChannelThreads = 256;
/// Neighbouring channels of a thread: 16 bytes of them where registers allow it, else less.
SSMBENCH_HD constexpr int forward_channels_of(int reach, int element_bytes) {
  return reach == 4 && element_bytes == 2 ? 8 : 4;
}
inline constexpr int kBackwardChannels = 4;
/// Steps whose loads a thread of gradients has in flight, channels last: f32 has no registers for more.
SSMBENCH_HD constexpr int backward_steps_at_once(int element_bytes) {
  return element_bytes == 2 ? 4 : 2;
}
inline constexpr int kUpdateChannels = 8;

/// Where channels are last: a block is `groups` groups of neighbouring channels times `runs` runs of steps.
/// Groups are the lanes of a warp as far as there are enough, so that a warp reads whole lines.
struct ChannelPlan {
  int channels;  ///< of a group
  int steps;     ///< of a run
  int groups_log2;
  std::int64_t group_tiles, run_tiles;  ///< blocks along channels, and along the steps of one sequence

  SSMBENCH_HD constexpr int groups() const { return 1 << groups_log2; }
  SSMBENCH_HD constexpr int runs() const { return kChannelThreads >> groups_log2; }
  constexpr std::int64_t blocks(std::int64_t batch) const { return batch * run_tiles * group_tiles; }
};

/// Where a thread of a block works.
struct ChannelPlace {
  std::int64_t batch, channel, step;  ///< the first of each
  std::int64_t partial;               ///< of batch × blocks along steps
  int group, run;                     ///< in the block
};

SSMBENCH_HD constexpr ChannelPlace channel_place(const ChannelPlan& plan, std::int64_t block, int thread) {
  const std::int64_t group_tile = block % plan.group_tiles;
  const std::int64_t partial = block / plan.group_tiles;
  const int group = thread & (plan.groups() - 1);
  const int run = thread >> plan.groups_log2;
  return {.batch = partial / plan.run_tiles,
          .channel = (group_tile * plan.groups() + group) * plan.channels,
          .step = (partial % plan.run_tiles * plan.runs() + run) * plan.steps,
          .partial = partial,
          .group = group,
          .run = run};
}

/// Runs are as long as leaves enough threads to fill an H200, two blocks on a multiprocessor: a run reads the
/// steps before it once more.
constexpr ChannelPlan plan_channels(std::int64_t batch, std::int64_t dim, std::int64_t seqlen, int channels,
                                    int least_steps, int most_steps) {
  constexpr std::int64_t kEnoughThreads = std::int64_t{h200::kMultiprocessors} * 448;
  const std::int64_t groups = ceil_div(dim, channels);
  int steps = most_steps;
  while (steps > least_steps && batch * groups * ceil_div(seqlen, steps) < kEnoughThreads) steps /= 2;
  const int groups_log2 = ceil_log2(static_cast<std::uint64_t>(std::min<std::int64_t>(groups, kWarpThreads)));
  const int runs = kChannelThreads >> groups_log2;
  return {.channels = channels,
          .steps = steps,
          .groups_log2 = groups_log2,
          .group_tiles = ceil_div(groups, std::int64_t{1} << groups_log2),
          .run_tiles = ceil_div(seqlen, std::int64_t{steps} * runs)};
}

/// Where time is last: a warp takes a segment of a row of (batch, channel), a tile of 32 × 8 steps at a time.
inline constexpr int kLaneSteps = 8;
inline constexpr int kTileSteps = kWarpThreads * kLaneSteps;
inline constexpr int kRowWarps = 4;
inline constexpr int kForwardTiles = 4;
inline constexpr int kBackwardTiles = 8;
/// Blocks of gradients that a multiprocessor has registers for.
inline constexpr int kBackwardRowBlocks = 8;

struct RowPlan {
  int segment_steps;
  std::int64_t segments;  ///< of a row

  /// One warp per segment.
  constexpr std::int64_t blocks(std::int64_t rows) const { return ceil_div(rows * segments, kRowWarps); }
};

constexpr RowPlan plan_rows(std::int64_t seqlen, int tiles) {
  const int steps = tiles * kTileSteps;
  return {.segment_steps = steps, .segments = ceil_div(seqlen, steps)};
}

/// A decoding step: a thread takes a group of eight channels, or a channel, of a run of rows.
inline constexpr int kUpdateThreads = 128;
inline constexpr int kRowsAtOnce = 2;

struct UpdatePlan {
  int channels;  ///< of a group
  int rows;      ///< of a run
  std::int64_t group_tiles, row_tiles;

  constexpr std::int64_t blocks() const { return group_tiles * row_tiles; }
};

struct UpdatePlace {
  std::int64_t channel, row;  ///< the first of each
};

SSMBENCH_HD constexpr UpdatePlace update_place(const UpdatePlan& plan, std::int64_t block, int thread) {
  return {.channel = (block % plan.group_tiles * kUpdateThreads + thread) * plan.channels,
          .row = block / plan.group_tiles * plan.rows};
}

/// Runs are as long as leaves enough threads to fill an H200: weights are read once a run.
constexpr UpdatePlan plan_update(std::int64_t batch, std::int64_t dim, int channels, int most_rows) {
  constexpr std::int64_t kEnoughThreads = std::int64_t{h200::kMultiprocessors} * 1024;
  const std::int64_t groups = ceil_div(dim, channels);
  int rows = most_rows;
  while (rows > 1 && ceil_div(batch, rows) * groups < kEnoughThreads) rows /= 2;
  return {.channels = channels,
          .rows = rows,
          .group_tiles = ceil_div(groups, kUpdateThreads),
          .row_tiles = ceil_div(batch, rows)};
}

}  // namespace ssmbench::window
