#pragma once

#include <cstdint>

#include "kernels/common/hardware.h"
#include "kernels/common/host_device.h"
#include "ops/mamba3/mamba3.h"

// How cuda-step's threads share the rows of a head; the picture is in kernel.cuh.

namespace ssmbench::mamba3 {

/// With fewer threads a block, a multiprocessor has more heads of which some wait while others compute.
inline constexpr int kStepThreads = 128;
/// Head dims of a thread, kStepThreads apart.
inline constexpr int kStepDims = kMaxMamba3Dim / kStepThreads;
static_assert(kStepDims * kStepThreads == kMaxMamba3Dim);

/// The lanes that hold a row, `vectors` vectors of `width` neighbouring states each.
struct RowShape {
  int lanes, width, vectors;

  SSMBENCH_HD constexpr int states() const { return width * vectors; }  ///< of a lane
  SSMBENCH_HD constexpr int padded() const { return lanes * states(); }
  SSMBENCH_HD constexpr int rows_of_pass() const { return kStepThreads / lanes; }
  /// Rows of a thread in registers at a time: some 32 states.
  SSMBENCH_HD constexpr int rows() const { return 32 / (states() <= 4 ? 4 : 8); }
  /// Batches of them in flight. A full shape's wait in shared memory.
  SSMBENCH_HD constexpr int batches(bool full) const { return full ? 2 : 1; }
  SSMBENCH_HD constexpr int rows_in_flight(bool full) const {
    return rows() * batches(full) * rows_of_pass();
  }
  /// Bytes of shared memory of a full shape's.
  SSMBENCH_HD constexpr int staged_bytes() const { return 4 * padded() * rows_in_flight(true); }
  /// Resident on a multiprocessor of an H200: registers for so many. One more would spill.
  SSMBENCH_HD constexpr int blocks(bool full) const { return full ? 6 : 4; }
  /// Whether no lane and no row of a thread is without states, so that nothing need be checked.
  SSMBENCH_HD constexpr bool is_full(std::int64_t headdim, std::int64_t dstate) const {
    return dstate == padded() && headdim % rows_in_flight(true) == 0;
  }
};

inline constexpr RowShape kRowShapes[]{{8, 4, 1}, {16, 4, 1}, {32, 4, 1}, {32, 4, 2}, {32, 2, 1}, {32, 2, 4}};

/// The index of the shape for rows of dstate, which vectors of 4 have to divide.
constexpr int row_shape_of(std::int64_t dstate) {
  if (dstate % 4 != 0) return dstate <= kRowShapes[4].padded() ? 4 : 5;
  int shape = 0;
  while (kRowShapes[shape].padded() < dstate) ++shape;
  return shape;
}

/// State j of a lane.
SSMBENCH_HD constexpr int state_of(RowShape shape, int lane, int j) {
  return j / shape.width * (shape.lanes * shape.width) + lane * shape.width + j % shape.width;
}

}  // namespace ssmbench::mamba3
