#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/common/host_device.h"
#include "kernels/common/index_math.h"

// Which thread of cuda-recurrent does what, and where its tiles lie. Host and device, so that the CPU tests
// cover it.

namespace ssmbench {

inline constexpr int kRecurrentStates = 32;  ///< of a thread; 8 lanes hold the largest dstate, 256
inline constexpr int kRecurrentMaxThreads = 256;
inline constexpr int kRecurrentSteps = 16;  ///< of a tile

/// How cuda-recurrent cuts a problem up: blocks of `rows` rows of a head's state (of P), `lanes` neighbouring
/// threads for each.
struct RecurrentPlan {
  int lanes;  ///< 1, 2, 4 or 8
  int rows;   ///< lanes × rows is a multiple of 32, at most 256
  std::int64_t blocks_per_head;

  SSMBENCH_HD constexpr int threads() const { return lanes * rows; }
  SSMBENCH_HD constexpr int states() const { return lanes * kRecurrentStates; }  // dstate rounded up
  SSMBENCH_HD constexpr int row_of(int thread) const { return thread / lanes; }
  SSMBENCH_HD constexpr int lane_of(int thread) const { return thread % lanes; }
  // Shared memory, in floats: B and C as [step][state], x and y as [step][row], Δ and decay of each step. A
  // thread's states are four at a time, the lanes' fours side by side, so that lanes read different banks.
  SSMBENCH_HD constexpr int state_of(int lane, int i) const { return (i / 4 * lanes + lane) * 4 + i % 4; }
  SSMBENCH_HD constexpr int projection_floats() const { return kRecurrentSteps * states(); }
  SSMBENCH_HD constexpr int row_floats() const { return kRecurrentSteps * rows; }
  SSMBENCH_HD constexpr int shared_bytes() const {
    return (2 * projection_floats() + 2 * row_floats() + 2 * kRecurrentSteps) *
           static_cast<int>(sizeof(float));
  }
};

constexpr RecurrentPlan plan_recurrent(std::int64_t headdim, std::int64_t dstate) {
  RecurrentPlan plan{};
  plan.lanes = dstate <= 32 ? 1 : dstate <= 64 ? 2 : dstate <= 128 ? 4 : 8;
  // As many rows as there are, in whole warps, since lanes exchange sums by shuffles.
  const int rows_per_warp = 32 / plan.lanes;
  const auto wanted = static_cast<int>(ceil_div(headdim, rows_per_warp)) * rows_per_warp;
  plan.rows = std::min(wanted, kRecurrentMaxThreads / plan.lanes);
  plan.blocks_per_head = ceil_div(headdim, plan.rows);
  return plan;
}

}  // namespace ssmbench
