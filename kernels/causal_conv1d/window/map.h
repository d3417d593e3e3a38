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

/// Steps beside its own that a run or a segment looks at, at most.
inline constexpr int kMostTaps = 8;

/// Where channels are last: threads of a block, blocks on a multiprocessor of an H200, and rounds of
/// reach_of() steps whose loads a thread has in flight.
inline constexpr int kChannelThreads = 128;
inline constexpr int kChannelBlocks = 4;
inline constexpr int kRoundsAhead = 2;
/// Neighbouring channels of a thread: 16 bytes of them where registers allow it, else less.
SSMBENCH_HD constexpr int forward_channels_of(int reach, int element_bytes) {
  return reach == 4 && element_bytes == 2 ? 8 : 4;
}
inline constexpr int kBackwardChannels = 4;
inline constexpr int kUpdateChannels = 8;

struct ConvShape {
  std::int64_t batch, dim, seqlen;
  int width, element_bytes;
};

/// Rounds in which an H200 runs the blocks, of which a multiprocessor takes `at_once`.
constexpr std::int64_t waves_of(std::int64_t blocks, int at_once) {
  return ceil_div(blocks, std::int64_t{h200::kMultiprocessors} * at_once);
}

/// Where channels are last: a block is `groups` groups of neighbouring channels times `runs` runs of steps.
/// Groups are the lanes of a warp as far as there are enough, so that a warp reads whole lines. Runs are
/// counted over all sequences. Where rows are no whole vectors, lane 0 has the last group of the tile before
/// once more, and stores nothing: the lane after stores a vector that begins with that group's last channels.
struct ChannelPlan {
  int channels;  ///< of a group
  int steps;     ///< of a run
  int groups_log2;
  int shared_groups;                    ///< 1 where tiles overlap, else 0
  std::int64_t sequence_runs;           ///< of one sequence
  std::int64_t group_tiles, run_tiles;  ///< blocks along channels, and along the steps of all sequences

  SSMBENCH_HD constexpr int groups() const { return 1 << groups_log2; }
  SSMBENCH_HD constexpr int channels_log2() const { return groups_log2 + (channels == 8 ? 3 : 2); }
  SSMBENCH_HD constexpr int runs() const { return kChannelThreads >> groups_log2; }
  constexpr std::int64_t blocks() const { return run_tiles * group_tiles; }
};

/// What a thread of a block works on.
struct ChannelPosition {
  /// The first of each. The batch may be past the last, the channel before the first.
  std::int64_t batch, channel, step;
  std::int64_t run_tile;
  int group, run;  ///< in the block
};

SSMBENCH_HD constexpr ChannelPosition channel_position(const ChannelPlan& plan, std::int64_t block,
                                                       int thread) {
  const std::int64_t group_tile = block % plan.group_tiles;
  const std::int64_t run_tile = block / plan.group_tiles;
  const int group = thread & (plan.groups() - 1);
  const int run = thread >> plan.groups_log2;
  const std::int64_t run_of_all = run_tile * plan.runs() + run;
  return {.batch = run_of_all / plan.sequence_runs,
          .channel = (group_tile * (plan.groups() - plan.shared_groups) + group - plan.shared_groups) *
                     plan.channels,
          .step = run_of_all % plan.sequence_runs * plan.steps,
          .run_tile = run_tile,
          .group = group,
          .run = run};
}

/// Whether the two vectors that hold a thread's channels of a step may end behind a tensor (batch, seqlen, dim).
SSMBENCH_HD constexpr bool may_pass_end(const ChannelPosition& at, int channels, std::int64_t step,
                                        std::int64_t batch, std::int64_t seqlen, std::int64_t dim) {
  return ((batch - at.batch) * seqlen - step) * dim < at.channel + 2 * channels;
}

/// How long runs may be, and what one takes beside its steps, in steps: loads before the first, steps that
/// another run has, too, and sums.
struct RunCost {
  int most_steps, overhead_steps;
};
inline constexpr RunCost kForwardRun{128, 4};
inline constexpr RunCost kBackwardRun{256, 16};

/// Runs as long as makes whole waves of blocks on an H200.
constexpr ChannelPlan plan_channels(std::int64_t batch, std::int64_t dim, std::int64_t seqlen, int channels,
                                    const RunCost& run) {
  constexpr int kLeastSteps = 8;
  const std::int64_t groups = ceil_div(dim, channels);
  ChannelPlan best{};
  std::int64_t least = 0;
  for (int steps = kLeastSteps; steps <= run.most_steps; steps += 4) {
    ChannelPlan plan{};
    plan.channels = channels;
    plan.steps = steps;
    plan.groups_log2 = ceil_log2(static_cast<std::uint64_t>(std::min<std::int64_t>(groups, kWarpThreads)));
    plan.sequence_runs = ceil_div(seqlen, steps);
    plan.shared_groups = dim % channels != 0 && groups > plan.groups() ? 1 : 0;
    plan.group_tiles = ceil_div(groups, plan.groups() - plan.shared_groups);
    plan.run_tiles = ceil_div(batch * plan.sequence_runs, plan.runs());
    const std::int64_t cost = waves_of(plan.blocks(), kChannelBlocks) * (steps + run.overhead_steps);
    if (best.steps == 0 || cost <= least) {
      best = plan;
      least = cost;
    }
  }
  return best;
}

/// Where time is last: a warp takes a segment of a row of (batch, channel), a tile of 32 × 8 steps at a time.
inline constexpr int kLaneSteps = 8;
inline constexpr int kTileSteps = kWarpThreads * kLaneSteps;
inline constexpr int kRowWarps = 4;
inline constexpr int kForwardTiles = 4;
inline constexpr int kBackwardTiles = 11;
/// Tiles that a warp of gradients has in shared memory, a power of two.
SSMBENCH_HD constexpr int tile_slots_of(int element_bytes) {
  return element_bytes == 2 ? 4 : 8;
}
/// Blocks of gradients that a multiprocessor has registers and shared memory for.
SSMBENCH_HD constexpr int backward_row_blocks(int element_bytes, bool is_packed) {
  if (element_bytes == 4) return 3;
  return is_packed ? 6 : 8;
}

struct RowPlan {
  int segment_steps;
  std::int64_t segments;  ///< of a row

  /// One warp per segment.
  constexpr std::int64_t blocks(std::int64_t rows) const { return ceil_div(rows * segments, kRowWarps); }
};

/// Segments of at most `most_tiles` tiles, as many in each but the last. The first segment of a row that does
/// not start at a vector begins up to a vector before it.
constexpr RowPlan plan_rows(std::int64_t seqlen, int most_tiles, int element_bytes) {
  const int vector = 16 / element_bytes;
  const int before = seqlen % vector == 0 ? 0 : vector - 1;
  const std::int64_t tiles = ceil_div(seqlen + before, kTileSteps);
  const std::int64_t segments = ceil_div(tiles, most_tiles);
  const auto segment_tiles = static_cast<int>(ceil_div(tiles, segments));
  return {.segment_steps = segment_tiles * kTileSteps, .segments = ceil_div(tiles, segment_tiles)};
}

/// A decoding step: a thread takes a group of eight channels, or a channel, of a run of rows.
inline constexpr int kUpdateThreads = 128;
inline constexpr int kUpdateBlocks = 4;  ///< on a multiprocessor
inline constexpr int kRowsAtOnce = 2;
/// Tokens, or steps of a state, that a thread loads at once.
inline constexpr int kTokensAtOnce = 4;

struct UpdatePlan {
  int channels;  ///< of a group
  int rows;      ///< of a run
  std::int64_t group_tiles, row_tiles;

  constexpr std::int64_t blocks() const { return group_tiles * row_tiles; }
};

struct UpdatePosition {
  std::int64_t channel, row;  ///< the first of each
};

SSMBENCH_HD constexpr UpdatePosition update_position(const UpdatePlan& plan, std::int64_t block, int thread) {
  return {.channel = (block % plan.group_tiles * kUpdateThreads + thread) * plan.channels,
          .row = block / plan.group_tiles * plan.rows};
}

/// Runs of at most most_rows rows, which read weights once, and as long as makes whole waves of blocks on an
/// H200.
constexpr UpdatePlan plan_update(std::int64_t batch, std::int64_t dim, int channels, int most_rows) {
  constexpr int kOverheadRows = 1;  // of a run: weights, and what is loaded before its first row
  UpdatePlan best{};
  std::int64_t least = 0;
  for (int rows = 1; rows <= most_rows; rows += rows < kRowsAtOnce ? 1 : kRowsAtOnce) {
    const UpdatePlan plan{.channels = channels,
                          .rows = rows,
                          .group_tiles = ceil_div(ceil_div(dim, channels), kUpdateThreads),
                          .row_tiles = ceil_div(batch, rows)};
    const std::int64_t cost = waves_of(plan.blocks(), kUpdateBlocks) * (rows + kOverheadRows);
    if (best.rows == 0 || cost < least) {
      best = plan;
      least = cost;
    }
  }
  return best;
}

}  // namespace ssmbench::window
