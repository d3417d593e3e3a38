#pragma once

#include "kernels/common/scalar_math.h"

namespace ssmbench {

/// How dt becomes Δ.
struct StepRule {
  bool softplus;
  float low, high;  ///< dt_limit
};

/// Δ = clamp(softplus(dt + bias)), f32. Callers force Δ = 0 past the sequence's end themselves: for dt = 0
/// this is softplus(bias), which is not.
SSMBENCH_HD inline float step_size(float dt, float bias, const StepRule& rule) {
  const float raw = dt + bias;
  return fminf(fmaxf(rule.softplus ? softplus(raw) : raw, rule.low), rule.high);
}

}  // namespace ssmbench
