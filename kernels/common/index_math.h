#pragma once

#include <cstdint>

#include "kernels/common/host_device.h"

// Integer arithmetic of index maps, host and device.

namespace ssmbench {

/// Blocks that fit in the x dimension of a CUDA grid, the only one that is not limited to 65535.
inline constexpr std::int64_t kMaxGridX = 2147483647;

/// ⌈a / b⌉ for a ≥ 0, b > 0, without overflow where a + b would.
SSMBENCH_HD constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0);
}

/// How many of the `size` steps that start at `start` lie before `end`; start < end.
SSMBENCH_HD constexpr int steps_within(std::int64_t start, int size, std::int64_t end) {
  return end - start < size ? static_cast<int>(end - start) : size;
}

}  // namespace ssmbench
