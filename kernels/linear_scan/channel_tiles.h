#pragma once

#include <cstdint>

#include "kernels/common/host_device.h"
#include "kernels/common/index_math.h"

// Which block of the linear_scan kernels does what. Host and device, so that the CPU tests cover it.

namespace ssmbench {

/// A batch, and the first of the neighbouring channels that a block takes.
struct ChannelTile {
  std::int64_t batch, first;
};

/// Tiles of `channels` channels that cover all of (batch, dim).
SSMBENCH_HD constexpr std::int64_t channel_tiles(std::int64_t batch, std::int64_t dim, int channels) {
  return batch * ceil_div(dim, channels);
}

SSMBENCH_HD constexpr ChannelTile channel_tile(std::int64_t tile, std::int64_t dim, int channels) {
  const std::int64_t per_batch = ceil_div(dim, channels);
  return {tile / per_batch, tile % per_batch * channels};
}

}  // namespace ssmbench
