#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/common/hardware.h"
#include "kernels/common/index_math.h"
#include "ops/mamba3/mamba3.h"

// How cuda-sequential cuts a problem into blocks and steps into tiles; the picture is in kernel.cuh.

namespace ssmbench::mamba3 {

inline constexpr int kLanes = 8;  ///< threads of a row
inline constexpr int kRowsOfWarp = kWarpThreads / kLanes;
inline constexpr int kMaxRows = 32;  ///< of a block
inline constexpr int kMaxTileSteps = 16;

/// States of a thread: a power of two from 4, kLanes threads hold a row.
inline int states_of_thread(std::int64_t dstate) {
  int states = 4;
  while (states * kLanes < dstate) states *= 2;
  return states;
}

/// State j of a thread.
SSMBENCH_HD constexpr int state_of(int lane, int j) {
  return j / 4 * (4 * kLanes) + 4 * lane + j % 4;
}

struct SequentialPlan {
  int rows;    ///< of a block
  int slabs;   ///< blocks of a head
  int steps;   ///< of a tile
  int padded;  ///< states of a row in shared memory
  int heads_per_group;
  int shared_bytes;

  /// Floats of shared memory of one step: q, k and y of all ranks, V, three scalars, and the angles.
  static std::int64_t floats_of_step(const Mamba3& scan, int rows, int padded) {
    return 2 * scan.rank * padded + (scan.rank + 1) * rows + 3 + scan.angles;
  }
  /// What a head has: MIMO_V and the angles.
  static std::int64_t floats_of_head(const Mamba3& scan, int rows) { return scan.rank * rows + scan.angles; }

  explicit SequentialPlan(const Mamba3& scan) {
    const auto needed = static_cast<int>(ceil_div(scan.headdim, kRowsOfWarp)) * kRowsOfWarp;
    rows = std::min(kMaxRows, needed);
    slabs = static_cast<int>(ceil_div(scan.headdim, rows));
    padded = states_of_thread(scan.dstate) * kLanes;
    heads_per_group = static_cast<int>(scan.heads_per_group());
    const std::int64_t room = kDefaultSharedBytes / 4 - floats_of_head(scan, rows);
    const std::int64_t of_step = floats_of_step(scan, rows, padded);
    steps = static_cast<int>(std::clamp<std::int64_t>(room / of_step, 1, kMaxTileSteps));
    shared_bytes = static_cast<int>(4 * (floats_of_head(scan, rows) + steps * of_step));
  }
  int threads() const { return rows * kLanes; }
  std::int64_t blocks(const Mamba3& scan) const { return scan.sequences * scan.nheads * slabs; }
};

}  // namespace ssmbench::mamba3
