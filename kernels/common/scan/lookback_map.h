#pragma once

#include <cstdint>

#include "kernels/common/host_device.h"

// The order in which the blocks of cuda-lookback take tiles. Host and device, so that the CPU tests cover it.

namespace ssmbench {

/// A tile: its index along time, and the row or group of rows.
struct LookbackTile {
  std::int64_t tile, row;
};

/// Ticket → tile: all rows of one tile of time before the next, so that all that a tile waits for was taken
/// before it.
SSMBENCH_HD constexpr LookbackTile lookback_tile(std::int64_t ticket, std::int64_t rows) {
  return {ticket / rows, ticket % rows};
}

}  // namespace ssmbench
