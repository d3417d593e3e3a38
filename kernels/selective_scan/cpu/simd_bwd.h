#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/index_math.h"
#include "kernels/selective_scan/args.h"
#include "kernels/selective_scan/cpu/simd.h"

// What the parts of cpu-simd for the scan's gradients that are compiled once per instruction set share with
// the part that is compiled once.

namespace ssmbench::simd {

/// Steps of a tile, between which states are kept; and the channels whose tiles lie side by side. What the
/// loop over states goes through, 6 rows a step and vector, is then 48 KB. Fewer steps take longer to load
/// and store, more do not fit a first-level cache.
inline constexpr std::size_t kBwdTile = 32;
inline constexpr std::size_t kBwdChannels = 64;
/// States that go through a tile together and share its rows.
inline constexpr std::size_t kBwdStates = 2;
/// Tasks that are wanted at least; each has sums of its own. Not the number of threads, so that results do
/// not depend on it.
inline constexpr std::int64_t kScanBwdTasks = 32;

/// selective_scan_bwd with what the implementations on GPUs do not take.
struct SimdGradientArgs : ScanGradientArgs {
  const float* dlast_state;  ///< (B, D, N) or null
};

/// How work is shared out, and where the workspace's parts lie, in floats.
struct ScanBwdPlan {
  std::int64_t tiles, groups, channels_per_group;
  std::int64_t slabs;     ///< a group's channels are shared out to this number of tasks of a batch
  std::int64_t per_slab;  ///< channels of a task; the last one of a group may have fewer
  std::int64_t tasks;
  std::int64_t threads;
  std::int64_t projection;    ///< floats of a task's dB or dC, [state][time]; 0 where it is constant
  std::int64_t of_tasks;      ///< [task][dB, dC]
  std::int64_t checkpoints;   ///< [thread][tile][vector][state][lane]: the states that enter the tiles
  std::int64_t checkpoint;    ///< floats of one tile's
  std::int64_t per_channel;   ///< [batch][channel][dA, dB, dC of each state; dD; ddelta_bias]
  std::int64_t channel_sums;  ///< floats of one channel's
  std::int64_t floats;        ///< in all

  /// Channels [first, last) of one (batch, group).
  struct Task {
    std::int64_t batch, group, first, last;
  };
  Task task(std::int64_t index) const {
    const std::int64_t group = index / slabs % groups;
    const std::int64_t first = index % slabs * per_slab;
    return {index / (slabs * groups), group, group * channels_per_group + first,
            group * channels_per_group + std::min(channels_per_group, first + per_slab)};
  }
};

inline ScanBwdPlan plan_scan_bwd(const SelectiveScan& scan, std::int64_t threads) {
  constexpr auto kLanes = static_cast<std::int64_t>(kMaxLanes);
  ScanBwdPlan plan{};
  plan.tiles = ceil_div(scan.seqlen, static_cast<std::int64_t>(kBwdTile));
  plan.groups = scan.groups;
  plan.channels_per_group = scan.channels_per_group();
  const std::int64_t wanted = ceil_div(kScanBwdTasks, scan.batch * scan.groups);
  plan.per_slab = ceil_div(ceil_div(plan.channels_per_group, wanted), kLanes) * kLanes;
  plan.slabs = ceil_div(plan.channels_per_group, plan.per_slab);
  plan.tasks = scan.batch * scan.groups * plan.slabs;
  plan.threads = std::min(threads, plan.tasks);
  plan.projection = scan.dstate * plan.tiles * static_cast<std::int64_t>(kBwdTile);
  plan.of_tasks = 0;
  plan.checkpoint = ceil_div(scan.dstate, 4) * 4 * static_cast<std::int64_t>(kBwdChannels);
  plan.checkpoints = plan.of_tasks + plan.tasks * 2 * plan.projection;
  plan.per_channel = plan.checkpoints + plan.threads * plan.tiles * plan.checkpoint;
  plan.channel_sums = 3 * scan.dstate + 2;
  plan.floats = plan.per_channel + scan.batch * scan.dim * plan.channel_sums;
  return plan;
}

/// One thread's working memory. lane: a channel in a vector; vector: one of the vectors of channels that are
/// done side by side, each with room for its states rounded up to 4, the width of a transposition. Lanes
/// without a channel hold zeros.
struct alignas(64) ScanBwdScratch {
  static constexpr std::size_t kStates = static_cast<std::size_t>(kMaxDState);
  static constexpr std::size_t kRows = kBwdTile * kBwdChannels;
  static constexpr std::size_t kStateRows = kStates * kBwdChannels;

  float delta[kRows];    ///< Δ, [vector][step][lane], and so the next ones
  float delta_u[kRows];  ///< Δ·u
  float dy[kRows];       ///< gradient of y + D·u
  float y[kRows];        ///< Σ C·h; then dz
  float dw[kRows];       ///< Σ g·B, which is u's gradient divided by Δ; then du
  float ddelta[kRows];   ///< Σ A·w; then ddelta
  float u[kRows];
  float delta_slope[kRows];  ///< ∂Δ/∂delta
  float dz_factor[kRows];    ///< dz = (y + D·u)·dz_factor

  float decays[kBwdStates * kBwdTile * kMaxLanes];        ///< [state at hand][step][lane]
  float states[kBwdStates * (kBwdTile + 1) * kMaxLanes];  ///< likewise, from the one before the tile on
  float shares[2 * kBwdStates * kBwdTile * kMaxLanes];    ///< [state at hand][dB, dC][step][lane]

  float A[kStateRows];      ///< [vector][state][lane]
  float state[kStateRows];  ///< likewise
  float carry[kStateRows];  ///< Ā·g of the step after
  float dA[kStateRows];     ///< sum over time
  float dB[kStateRows];     ///< likewise, where constant
  float dC[kStateRows];
  float B[kStateRows];             ///< variable: [state][step of the tile]; constant: [vector][state][lane]
  float C[kStateRows];             ///< like B
  float staging[kStates * kTile];  ///< a matrix before transposition
  float sums[kStates * kTile];     ///< dB or dC, [state][step]
  float dD[kBwdChannels];          ///< [vector][lane], sum over time
  float ddelta_bias[kBwdChannels];
};

}  // namespace ssmbench::simd
