#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/cpu/simd_lanes.h"
#include "kernels/common/index_math.h"
#include "ops/ssd_chunk_scan/ssd_chunk_scan.h"

// cpu-simd for Mamba-2: what the code for each instruction set shares with the code that is compiled once.

namespace ssmbench::simd {

/// Steps of a chunk.
inline constexpr std::size_t kSsdTile = 32;
/// Room for states, and for head dims rounded up to any vector's lanes.
inline constexpr std::size_t kSsdStates = static_cast<std::size_t>(kMaxSsdDim);

/// What time does in the steps of a chunk, for one head. Past the last step Δ is 0.
struct alignas(64) SsdSteps {
  float delta[kSsdTile], delta_slope[kSsdTile];
  float decay[kSsdTile];  ///< Σ Δ·A over the chunk's steps so far
  float enter[kSsdTile];  ///< weight of the state that enters; 0 behind a reset
  float leave[kSsdTile];  ///< weight of the step in the state that leaves; 0 ahead of a reset
  float first[kSsdTile];  ///< first step of the chunk that is of the same sequence
  bool starts[kSsdTile];  ///< first step of a sequence
};

/// Room for the states of a task's heads in floats, if it has more than one: half of a second-level cache.
inline constexpr std::int64_t kSsdTaskFloats = std::int64_t{1} << 17;

/// Heads `first` … `last` of a sequence, all of one group.
struct SsdHeads {
  std::int64_t sequence, first, last;
};

/// The forward pass's tasks: heads of one (sequence, group), which share C·Bᵀ. Results do not depend on how
/// many. The workspace has the states of a task's heads for each thread.
struct SsdFwdPlan {
  std::int64_t sequences, groups, heads_per_group;
  std::int64_t per_task, tasks_per_group;
  std::int64_t headdim;  ///< rounded up to the lanes of any vector
  std::int64_t state;    ///< floats of a head's state
  std::int64_t threads;
  std::int64_t floats;  ///< of the workspace

  std::int64_t tasks() const { return sequences * groups * tasks_per_group; }
  SsdHeads task(std::int64_t index) const {
    const std::int64_t group = index / tasks_per_group % groups;
    const std::int64_t first = index % tasks_per_group * per_task;
    return {index / (tasks_per_group * groups), group * heads_per_group + first,
            group * heads_per_group + std::min(heads_per_group, first + per_task)};
  }
};

inline SsdFwdPlan plan_ssd_fwd(const SsdChunkScan& scan, std::int64_t sequences, std::int64_t threads) {
  constexpr auto kLanes = static_cast<std::int64_t>(kMaxLanes);
  constexpr std::int64_t kTasksPerThread = 4;  // for an even end
  SsdFwdPlan plan{};
  plan.sequences = sequences;
  plan.groups = scan.groups;
  plan.heads_per_group = scan.heads_per_group();
  plan.headdim = ceil_div(scan.headdim, kLanes) * kLanes;
  plan.state = scan.dstate * plan.headdim;
  const std::int64_t wanted =
      ceil_div(kTasksPerThread * threads, std::max<std::int64_t>(1, sequences * scan.groups));
  const std::int64_t most = std::max<std::int64_t>(1, kSsdTaskFloats / plan.state);
  plan.per_task = std::clamp<std::int64_t>(plan.heads_per_group / wanted, 1, most);
  plan.tasks_per_group = ceil_div(plan.heads_per_group, plan.per_task);
  plan.threads = std::max<std::int64_t>(1, std::min(threads, plan.tasks()));
  plan.floats = plan.threads * plan.per_task * plan.state;
  return plan;
}

/// One thread's working memory. Rows are as long as the head dims rounded up to the lanes, or kSsdStates, or
/// kSsdTile.
struct alignas(64) SsdScratch {
  static constexpr std::size_t kRow = kSsdTile * kSsdStates;
  static constexpr std::size_t kSquare = kSsdTile * kSsdTile;

  float B[kRow], C[kRow];                   ///< [step][state]
  float B_columns[kRow];                    ///< [state][step]
  float cb[kSquare], mixing[kSquare];       ///< [step t][step s]
  float x[kRow], x_leaving[kRow], y[kRow];  ///< [step][head dim]; x_leaving is Δ·leave·x
  float z[kSsdStates];
  SsdSteps steps;
};

}  // namespace ssmbench::simd
