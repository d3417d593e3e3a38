#include "kernels/distributed/time_split.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/common/index_math.h"

namespace ssmbench {
namespace {

std::int64_t steps_of(const Problem& problem) {
  return problem.size(problem.find_axis(AxisRole::time)->name);
}

}  // namespace

IndexRange shard_of(std::int64_t steps, int rank, int ranks) {
  const std::int64_t blocks = ceil_div(steps, kShardSteps);
  const auto begin = [&](std::int64_t r) { return std::min(steps, blocks * r / ranks * kShardSteps); };
  return {begin(rank), begin(std::int64_t{rank} + 1)};
}

Box time_box(const Problem& whole, int rank, int ranks) {
  return {{kTimeLetter, shard_of(steps_of(whole), rank, ranks)}};
}

Problem time_part(const Problem& whole, int rank, int ranks) {
  return whole.with(
      {{whole.find_axis(AxisRole::time)->name, shard_of(steps_of(whole), rank, ranks).count()}});
}

std::optional<std::string> too_short(const Problem& whole, int ranks) {
  if (ceil_div(steps_of(whole), kShardSteps) >= ranks) return {};
  return fmt::format("{} steps are too few for {} ranks: a shard has {} at least", steps_of(whole), ranks,
                     kShardSteps);
}

}  // namespace ssmbench
