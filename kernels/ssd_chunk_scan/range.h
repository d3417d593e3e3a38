#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/common/host_device.h"

// Powers of two that move numbers into the middle of f16's range, which with 5 bits of exponent has no room
// for what decays and Δ scale. Host and device, so that the CPU tests cover it.

namespace ssmbench {

/// Magnitudes, as powers of two, that operands are moved to: the largest is in [2^target, 2^(target + 1)).
/// f16 ends at 2^16, and is less exact below 2^-14.
inline constexpr int kWeightTarget = -1;  ///< weights of x and dy, which stay inside if they were
inline constexpr int kTileTarget = 9;     ///< the elements of a tile themselves
inline constexpr int kTopTarget = 14;     ///< where they differ so much that all of the range is wanted

/// A power of two and its inverse: multiplying by either is exact.
struct SsdScale {
  float up, down;
};

/// 2^exponent for -126 to 127.
SSMBENCH_HD inline float power_of_two(int exponent) {
  const std::uint32_t bits = static_cast<std::uint32_t>(exponent + 127) << 23;
  float result;
  memcpy(&result, &bits, sizeof result);
  return result;
}

/// The scale with magnitude·up in [2^target, 2^(target + 1)), as far as it and its inverse are normal
/// numbers; what is smaller, 0 too, gets the largest scale there is.
SSMBENCH_HD inline SsdScale scale_to(float magnitude, int target) {
  std::uint32_t bits;
  memcpy(&bits, &magnitude, sizeof bits);
  int exponent = target + 127 - static_cast<int>(bits >> 23 & 0xFFU);
  if (exponent > 126) exponent = 126;
  if (exponent < -126) exponent = -126;
  return {power_of_two(exponent), power_of_two(-exponent)};
}

}  // namespace ssmbench
