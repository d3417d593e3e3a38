#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/common/host_device.h"

// How the implementations for dense A cut a step up. Host and device: cpu-scalar and cuda-dense make the same
// cuts.

namespace ssmbench {

/// Lanes of a warp that share a row (b, d), each with one state: the power of two, at least 8, that holds
/// dstate.
constexpr int dense_lanes(std::int64_t dstate) {
  return dstate <= 8 ? 8 : dstate <= 16 ? 16 : 32;
}

/// foh does a step in equal parts whose ‖τA‖∞ is at most 1, which keeps the terms of the Taylor series from
/// growing before they fall: `parts` of them one after the other, or 2^doublings by doubling.
struct HoldPlan {
  int parts;
  int doublings;
};

/// Up to here one part after the other, each about ten products of A and a vector, is cheaper than ten
/// products of two matrices and one per doubling.
inline constexpr float kMostParts = 32.0F;

/// Given ‖ΔA‖∞. A norm that is not finite gives no numbers, in one part.
SSMBENCH_HD inline HoldPlan plan_hold(float norm) {
  if (!(norm > 1.0F && norm <= 3.4e38F)) return {1, 0};
  if (norm <= kMostParts) return {static_cast<int>(ceilf(norm)), 0};
  return {1, ilogbf(norm) + 1};
}

/// Terms of e^X − 1 for ‖X‖ ≤ 1: the next is 1/11! = 2.5e-8.
inline constexpr int kExponentialTerms = 10;

/// The terms (ΔA)^(k-1)/k! of φ1's series that f32 needs are those whose norm is above this: half of its
/// roundoff, as the rest of the series adds up to little more than its first term.
inline constexpr float kTaylorCutoff = 0x1p-25F;

}  // namespace ssmbench
