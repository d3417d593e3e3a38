#pragma once

#include <cmath>

#include "kernels/common/host_device.h"
#include "kernels/common/scalar_math.h"

// softplus, silu and what steps take, by as few instructions as their tolerance allows
// (reference/activations.h, reference/discretization.cpp), host and device: exponentials by the hardware's
// 2^x, whose argument x·log2(e) is off by |x| roundoffs.

namespace ssmbench::rows {

/// log(1 + e^x) = max(x, 0) + log1p(w), w = e^-|x| ≤ 1: log1p(w)/w by the polynomial of degree 9 with the
/// least relative error, 0.6 of a roundoff with these coefficients, that is 1 at 0. One MUFU, where a
/// logarithm would take a second one and lose w's digits.
SSMBENCH_HD inline float fast_softplus(float x) {
  constexpr float kSeries[]{1.0F,           -0x1.ffffbep-2F, 0x1.554c80p-2F, -0x1.ff0f86p-3F,
                            0x1.92f68cp-3F, -0x1.397544p-3F, 0x1.b252fcp-4F, -0x1.d29c04p-5F,
                            0x1.453e3ap-6F, -0x1.a931eep-9F};
  const float w = exp2_approximate(fabsf(x) * -kLog2E);
  float series = kSeries[9];
  for (int k = 8; k >= 0; --k) series = series * w + kSeries[k];
  return w * series + fmaxf(x, 0.0F);
}

/// z·σ(z) = z/(1 + e^-z). Where e^-z overflows, under -88.7, it is 0 and not the −1e-36 or less that it
/// should be.
SSMBENCH_HD inline float fast_silu(float z) {
  return z * reciprocal_approximate(1.0F + exp2_approximate(z * -kLog2E));
}

/// 2·tanh(z/2)/z = 1 + c₁x² + c₂x⁴ with x = z·log2(e), |x| ≤ ½: the polynomial with the least relative error,
/// 0.93 of a roundoff.
inline constexpr float kHalfTanhEnd = 0.5F;
inline constexpr float kHalfTanh1 = -0x1.47f810p-5F;
inline constexpr float kHalfTanh2 = 0x1.efd890p-10F;

}  // namespace ssmbench::rows
