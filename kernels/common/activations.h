#pragma once

#include <cmath>

#include "kernels/common/complex.h"
#include "kernels/common/host_device.h"
#include "kernels/common/scalar_math.h"

// softplus and silu with their slopes, host and device; the values alone, to a roundoff, are in
// scalar_math.h. The functions called fast_… take as few instructions as the tolerance of kernels that are
// bound by instructions allows (reference/common/activations.h): exponentials by the hardware's 2^x, whose
// argument x·log2(e) is off by |x| roundoffs.

namespace ssmbench {

/// f(x) and f'(x).
struct ValueSlope {
  float value, slope;
};

/// softplus, whose slope is the logistic function; both from e^-|x|, which never overflows.
SSMBENCH_HD inline ValueSlope softplus_slope(float x) {
  const float e = expf(-fabsf(x));
  return {fmaxf(x, 0.0F) + log1pf(e), (x < 0.0F ? e : 1.0F) * reciprocal(1.0F + e)};
}

/// silu: x·σ(x), σ(x)·(1 + x·σ(−x)).
SSMBENCH_HD inline ValueSlope silu_slope(float x) {
  const float e = expf(-fabsf(x));
  const float large = reciprocal(1.0F + e);
  const float small = e * large;
  const float open = x < 0.0F ? small : large;
  const float closed = x < 0.0F ? large : small;
  return {x * open, open * (1.0F + x * closed)};
}

/// log(1 + e^x) = max(x, 0) + log1p(w), w = e^-|x| ≤ 1: log1p(w)/w by the polynomial of degree 9 with the
/// least relative error, 0.6 of a roundoff with these coefficients, that is 1 at 0. One MUFU operation, where
/// a logarithm would take a second one and lose w's digits.
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

SSMBENCH_HD inline ValueSlope fast_softplus_slope(float x) {
  const float e = exp2_approximate(fabsf(x) * -kLog2E);
  return {fast_softplus(x), (x < 0.0F ? e : 1.0F) * reciprocal_approximate(1.0F + e)};
}

/// The limit keeps σ(−x) = e^-x·σ(x) finite.
SSMBENCH_HD inline ValueSlope fast_silu_slope(float x) {
  const float e = exp2_approximate(fminf(-kLog2E * x, 125.0F));
  const float open = reciprocal_approximate(1.0F + e);
  return {x * open, open * fmaf(x, e * open, 1.0F)};
}

}  // namespace ssmbench
