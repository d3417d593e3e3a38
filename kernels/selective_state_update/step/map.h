#pragma once

#include <bit>
#include <cstdint>

#include "kernels/common/host_device.h"
#include "kernels/common/index_math.h"

// Which thread of cuda-step holds which states. Pure integer arithmetic: tests cover all of it without a GPU.

namespace ssmbench {

inline constexpr int kStepWarp = kWarpThreads;
inline constexpr int kStepMaxWarps = 4;
/// Warps that keep an H200 busy, about four on each of its multiprocessors. With fewer, threads hold one row
/// each; with fewer even so, blocks are one warp.
inline constexpr std::int64_t kStepManyWarps = 512;

/// How a row of dstate states lies across a group of lanes.
enum class RowShape {
  one_vector,   ///< four neighbouring states per lane: 4 | dstate ≤ 128
  two_vectors,  ///< twice that, dstate / 2 apart or less: 4 | dstate > 128
  scalars,      ///< every lanes-th state, at most eight: any dstate
};

/// States per thread and row.
SSMBENCH_HD constexpr int states_per_row(RowShape shape) {
  return shape == RowShape::one_vector ? 4 : 8;
}

/// Rows that a thread holds at once: those of 16 states in flight, or one where rows are few. Row r
/// of a thread is owned by lane r of the lanes that share it, so that there are never more rows than lanes.
SSMBENCH_HD constexpr int rows_per_thread(RowShape shape, bool many) {
  return many ? 16 / states_per_row(shape) : 1;
}

/// A section is a run of rows that share B and C and, in form mamba2, the head: P rows of a (batch, head) in
/// form mamba2, D/G rows of a (batch, group) in form mamba1. Blocks do not straddle sections.
struct StepPlan {
  RowShape shape;
  bool many;       ///< threads hold several rows
  int lanes_log2;  ///< lanes that share a row
  int warps;       ///< per block
  std::int64_t sections, section_rows, blocks_per_section;

  SSMBENCH_HD constexpr int lanes() const { return 1 << lanes_log2; }
  SSMBENCH_HD constexpr int rows_per_pass() const { return kStepWarp >> lanes_log2; }
  SSMBENCH_HD constexpr int rows_per_warp() const { return rows_per_pass() * rows_per_thread(shape, many); }
  constexpr int threads() const { return warps * kStepWarp; }
  constexpr std::int64_t blocks() const { return sections * blocks_per_section; }
};

/// First state of a lane's vector `i` (one_vector, two_vectors), or its state `i` (scalars).
SSMBENCH_HD constexpr int state_of(RowShape shape, int lane, int lanes, int i) {
  return (lane + i * lanes) * (shape == RowShape::scalars ? 1 : 4);
}

/// sections × section_rows rows of dstate ≤ 256 states.
constexpr StepPlan plan_step(std::int64_t sections, std::int64_t section_rows, std::int64_t dstate) {
  const auto n = static_cast<unsigned>(dstate);
  StepPlan plan{.shape = n % 4 != 0 ? RowShape::scalars
                         : n <= 128 ? RowShape::one_vector
                                    : RowShape::two_vectors,
                .many = false,
                .lanes_log2 = 0,
                .warps = 1,
                .sections = sections,
                .section_rows = section_rows,
                .blocks_per_section = 1};
  const unsigned items = plan.shape == RowShape::scalars ? n : n / 4;
  plan.lanes_log2 = std::countr_zero(std::bit_ceil(items < 32 ? items : 32U));
  const auto warps_per_section = [&] { return ceil_div(section_rows, plan.rows_per_warp()); };
  plan.many = plan.lanes() >= rows_per_thread(plan.shape, true);
  if (warps_per_section() * sections < kStepManyWarps) plan.many = false;
  if (warps_per_section() * sections >= kStepManyWarps)
    plan.warps = static_cast<int>(warps_per_section() < kStepMaxWarps ? warps_per_section() : kStepMaxWarps);
  plan.blocks_per_section = ceil_div(section_rows, std::int64_t{plan.warps} * plan.rows_per_warp());
  return plan;
}

}  // namespace ssmbench
