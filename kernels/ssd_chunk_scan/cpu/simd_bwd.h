#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/cpu/simd_lanes.h"
#include "kernels/common/index_math.h"
#include "kernels/ssd_chunk_scan/cpu/simd.h"

// cpu-simd for Mamba-2's gradients: what the code for each instruction set shares with the code that is
// compiled once.

namespace ssmbench::simd {

/// The least number of tasks, each with sums of its own. It is not the number of threads, so that results do
/// not depend on that.
inline constexpr std::int64_t kSsdBwdTasks = 32;

/// A task: some heads of one (batch, group), one after the other.
struct SsdBwdTask {
  std::int64_t batch, first_head, last_head;
};

/// The tasks, and the layout of the workspace in floats.
struct SsdBwdPlan {
  std::int64_t chunks, batch, groups, heads_per_group;
  std::int64_t slices;           ///< tasks that share a group's heads
  std::int64_t per_slice;        ///< heads of a task; the last one of a group may have fewer
  std::int64_t headdim, dstate;  ///< rounded up to the lanes of any vector
  std::int64_t sums;             ///< per head: dA, ddt_bias, then dD of each head dim
  std::int64_t threads;
  std::int64_t projections;  ///< [task][dB, dC][time][dstate]
  std::int64_t states;       ///< [thread][chunk][dstate][headdim]: the states that enter the chunks of a head
  std::int64_t head_sums;    ///< [batch][head][sums]
  std::int64_t floats;       ///< in all

  std::int64_t tasks() const { return batch * groups * slices; }
  SsdBwdTask task(std::int64_t index) const {
    const std::int64_t group = index / slices % groups;
    const std::int64_t first = index % slices * per_slice;
    return {index / (slices * groups), group * heads_per_group + first,
            group * heads_per_group + std::min(heads_per_group, first + per_slice)};
  }
};

inline SsdBwdPlan plan_ssd_bwd(const SsdChunkScan& scan, std::int64_t threads) {
  constexpr auto kTileSteps = static_cast<std::int64_t>(kSsdTile);
  SsdBwdPlan plan{};
  plan.chunks = ceil_div(scan.seqlen, kTileSteps);
  plan.batch = scan.batch;
  plan.groups = scan.groups;
  plan.heads_per_group = scan.heads_per_group();
  const std::int64_t wanted =
      std::clamp<std::int64_t>(ceil_div(kSsdBwdTasks, scan.batch * scan.groups), 1, plan.heads_per_group);
  plan.per_slice = ceil_div(plan.heads_per_group, wanted);
  plan.slices = ceil_div(plan.heads_per_group, plan.per_slice);
  constexpr auto kLanes = static_cast<std::int64_t>(kMaxLanes);
  plan.headdim = ceil_div(scan.headdim, kLanes) * kLanes;
  plan.dstate = ceil_div(scan.dstate, kLanes) * kLanes;
  plan.sums = 2 + plan.headdim;
  plan.threads = std::min(threads, plan.tasks());
  plan.projections = 0;
  plan.states = plan.tasks() * 2 * scan.seqlen * plan.dstate;
  plan.head_sums = plan.states + plan.threads * plan.chunks * plan.dstate * plan.headdim;
  plan.floats = plan.head_sums + scan.batch * scan.nheads * plan.sums;
  return plan;
}

/// One thread's working memory. Rows are as long as the plan's headdim or dstate, or kSsdTile. Arrays of
/// floats start at multiples of the largest vector.
struct alignas(64) SsdBwdScratch {
  static constexpr std::size_t kRow = kSsdTile * kSsdStates;
  static constexpr std::size_t kState = kSsdStates * kSsdStates;
  static constexpr std::size_t kSquare = kSsdTile * kSsdTile;

  float x[kRow], dy[kRow];                                       ///< [step][head dim]
  float dz_factor[kRow];                                         ///< dout·silu'(z)
  float x_leaving[kRow];                                         ///< Δ·leave·x
  float dy_entering[kRow];                                       ///< enter·dy
  float y[kRow], u[kRow];                                        ///< [step][head dim]
  float B[kRow], C[kRow];                                        ///< [step][state]
  float B_columns[kRow], x_columns[kRow];                        ///< [state][step], [head dim][step]
  float state[kState], dstate[kState];                           ///< [state][head dim]
  float state_rows[kState], dstate_rows[kState];                 ///< [head dim][state]
  float cb[kSquare], dyx[kSquare], mixing[kSquare], q[kSquare];  ///< [step t][step s]

  SsdSteps steps;
  float column[kSsdTile];                      ///< sums of W/Δ's columns, without the diagonal
  double flow_out[kSsdTile];                   ///< terms of the decays' gradients that end at the step
  double flow_in[kSsdTile], direct[kSsdTile];  ///< that start there; what Δ has besides its decay
  double through;                              ///< what flows past all steps
  double sums[2 + kSsdStates];                 ///< of the head: dA, ddt_bias, dD per head dim
};

}  // namespace ssmbench::simd
