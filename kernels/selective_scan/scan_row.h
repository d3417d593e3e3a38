#pragma once

#include <cstdint>

#include "kernels/common/host_device.h"

namespace ssmbench {

/// One row of the scan: batch, channel, and the group whose B and C the channel uses.
struct ScanRow {
  std::int64_t b, d, g;
};

/// Index of a row → its coordinates. Neighbouring rows share a group, so that B and C come from the cache.
SSMBENCH_HD constexpr ScanRow scan_row(std::int64_t index, std::int64_t dim,
                                       std::int64_t channels_per_group) {
  const std::int64_t d = index % dim;
  return {index / dim, d, d / channels_per_group};
}

}  // namespace ssmbench
