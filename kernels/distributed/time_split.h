#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "model/box.h"
#include "model/problem.h"

// Shards of time: what every distributed scan along time has in common.

namespace ssmbench {

/// Shards begin at multiples of so many steps, as tiles and chunks of kernels do.
inline constexpr std::int64_t kShardSteps = 64;

/// The time steps of a rank: runs of blocks of kShardSteps that differ by a block at most. The last block may
/// be shorter. Empty where there are fewer blocks than ranks.
IndexRange shard_of(std::int64_t steps, int rank, int ranks);

/// The rank's part of a problem.
Box time_box(const Problem& whole, int rank, int ranks);
/// The problem that this part is, by itself.
Problem time_part(const Problem& whole, int rank, int ranks);

/// The reason of problems that are too short for so many ranks.
std::optional<std::string> too_short(const Problem& whole, int ranks);

}  // namespace ssmbench
