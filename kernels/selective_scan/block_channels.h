#pragma once

#include <cstdint>

#include "kernels/common/host_device.h"
#include "kernels/common/index_math.h"

// Block → channels, for kernels with channels across threads. Host and device, so that the CPU tests cover
// it.

namespace ssmbench {

/// The channels of a block: `count` ≥ 1 of them from `first` on, in batch b and group g.
struct BlockChannels {
  std::int64_t b, g, first;
  int count;
};

/// Block → channels, by any plan with blocks_per_group and channels(). Blocks of one group are neighbours, so
/// that its B and C come from the cache.
template <class Plan>
SSMBENCH_HD constexpr BlockChannels block_channels(const Plan& plan, std::int64_t block, std::int64_t groups,
                                                   std::int64_t channels_per_group) {
  // There are fewer than 2^31 blocks and groups; a division of 64 bits takes a hundred instructions.
  const auto index = static_cast<unsigned>(block);
  const auto blocks_per_group = static_cast<unsigned>(plan.blocks_per_group);
  const unsigned group = index / blocks_per_group;  // over all batches
  const std::int64_t b = group / static_cast<unsigned>(groups);
  const std::int64_t g = group % static_cast<unsigned>(groups);
  const std::int64_t start = std::int64_t{index % blocks_per_group} * plan.channels();
  return {b, g, g * channels_per_group + start, steps_within(start, plan.channels(), channels_per_group)};
}

}  // namespace ssmbench
