#pragma once

#include <cstdint>

#include "kernels/common/host_device.h"

// The order in which the blocks of cuda-lookback take tiles. Host and device, so that the CPU tests cover it.

namespace ssmbench {

/// Chunk of time, and the row or group of rows that the tile is of.
struct LookbackTile {
  std::int64_t chunk, row;
};

/// Ticket → tile: chunk by chunk, so that all that a tile waits for was taken before it.
SSMBENCH_HD constexpr LookbackTile lookback_tile(std::int64_t ticket, std::int64_t rows) {
  return {ticket / rows, ticket % rows};
}

}  // namespace ssmbench
