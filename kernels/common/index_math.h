#pragma once

#include <bit>
#include <cstdint>

#include "kernels/common/hardware.h"
#include "kernels/common/host_device.h"

// Integer arithmetic of index maps, host and device.

namespace ssmbench {

/// ⌈a / b⌉ for a ≥ 0, b > 0, without overflow where a + b would.
SSMBENCH_HD constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0);
}

/// log2 of the next power of two, for n ≥ 1.
constexpr int ceil_log2(std::uint64_t n) {
  return std::countr_zero(std::bit_ceil(n));
}

/// How many of the `size` steps that start at `start` lie before `end`; start < end.
SSMBENCH_HD constexpr int steps_within(std::int64_t start, int size, std::int64_t end) {
  return end - start < size ? static_cast<int>(end - start) : size;
}

}  // namespace ssmbench
