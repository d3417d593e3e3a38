#pragma once

#include <cmath>

#include "kernels/common/scalar_math.h"
#include "kernels/ssd_chunk_scan/args.h"

// The scalar parts of the SSD gradients, f32, host and device.

namespace ssmbench {

/// A step size, and its derivative by dt.
struct SsdDelta {
  float value, slope;
};

/// Δ of a raw dt: bias, softplus if asked, then the clamp to dt_limit, outside which the slope is 0.
SSMBENCH_HD inline SsdDelta ssd_delta(const SsdInputs& in, std::int64_t head, float dt) {
  const float raw = dt + (in.dt_bias != nullptr ? in.dt_bias[head] : 0.0F);
  SsdDelta delta{raw, 1.0F};
  if (in.dt_softplus) delta = {softplus(raw), 1.0F / (1.0F + expf(-raw))};
  if (delta.value < in.dt_low) return {in.dt_low, 0.0F};
  if (delta.value > in.dt_high) return {in.dt_high, 0.0F};
  return delta;
}

/// silu(z) = z·σ(z) and its derivative σ(z)·(1 + z·(1 − σ(z))).
struct Silu {
  float value, slope;
};

SSMBENCH_HD inline Silu silu_with_slope(float z) {
  // e^-|z| does not overflow, and 1 − σ is not a difference.
  const float small = expf(-fabsf(z));
#ifdef __CUDA_ARCH__
  const float scale = __fdividef(1.0F, 1.0F + small);  // within 2 ulp between 1 and 2, a quarter of the cost
#else
  const float scale = 1.0F / (1.0F + small);
#endif
  const float sigma = z < 0.0F ? small * scale : scale;
  const float rest = z < 0.0F ? scale : small * scale;
  return {z * sigma, sigma * (1.0F + z * rest)};
}

}  // namespace ssmbench
