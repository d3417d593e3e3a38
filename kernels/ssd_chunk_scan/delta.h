#pragma once

#include <cmath>

#include "kernels/common/activations.h"
#include "kernels/ssd_chunk_scan/args.h"

// How dt becomes Δ; f32, host and device.

namespace ssmbench {

struct StepRule {
  bool softplus;
  float low, high;  ///< dt_limit
};

/// Δ = clamp(softplus(dt + bias)). Callers force Δ = 0 past the sequence's end themselves: for dt = 0 this is
/// softplus(bias), which is not.
SSMBENCH_HD inline float step_size(float dt, float bias, const StepRule& rule) {
  const float raw = dt + bias;
  return fminf(fmaxf(rule.softplus ? softplus(raw) : raw, rule.low), rule.high);
}

/// Δ of a raw dt, and its derivative by dt: 0 outside of dt_limit.
SSMBENCH_HD inline ValueSlope step_size_slope(const SsdInputs& in, std::int64_t head, float dt) {
  const float raw = dt + (in.dt_bias != nullptr ? in.dt_bias[head] : 0.0F);
  ValueSlope delta{raw, 1.0F};
  if (in.dt_softplus) delta = {softplus(raw), 1.0F / (1.0F + expf(-raw))};
  if (delta.value < in.dt_low) return {in.dt_low, 0.0F};
  if (delta.value > in.dt_high) return {in.dt_high, 0.0F};
  return delta;
}

}  // namespace ssmbench
