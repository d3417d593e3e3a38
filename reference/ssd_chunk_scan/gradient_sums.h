#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

// What the gradients of chunked scans share: Mamba-2's and Mamba-3's.

namespace ssmbench {

/// What fp64 leaves of the differences that w is made of: some 2^10 roundings of 2^-53, in those of f32.
inline constexpr double kOwnError = 0x1p-19;
/// Implementations too take w as the difference of what flows in and out, within a chunk: so many roundings
/// of that. It shows where decays are strong and w is small beside it.
inline constexpr double kDifference = 2;
/// Heads of a group are done by at least so many tasks over all batches and groups, each with its own sums.
inline constexpr std::int64_t kGradientTasks = 32;

/// The gradient of a projection that heads share, of one (sequence, group): values, errors, and variances from
/// operands, [time][state], with ranks [time][rank][state].
struct ProjectionSums {
  std::vector<double> value;
  std::vector<float> error;
  std::vector<double> variance;  // squares of small values are less than a float holds

  explicit ProjectionSums(std::int64_t count) : value(count), error(count), variance(count) {}
  void clear() {
    std::ranges::fill(value, 0.0);
    std::ranges::fill(error, 0.0F);
    std::ranges::fill(variance, 0.0);
  }
};

/// Adds to the square of a deviation.
inline void add_variance(float& deviation, double variance) {
  deviation = static_cast<float>(std::sqrt(double{deviation} * deviation + variance));
}

}  // namespace ssmbench
