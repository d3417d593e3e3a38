// The elementwise functions of a scan on vectors. Compiled once per instruction set.

#if defined(SSMBENCH_SIMD_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SSMBENCH_SIMD_MATH_INL_H
#undef SSMBENCH_SIMD_MATH_INL_H
#else
#define SSMBENCH_SIMD_MATH_INL_H
#endif

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "kernels/cpu/simd_matrix-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ssmbench::simd::HWY_NAMESPACE {

/// e^x, infinite for NaN (Highway's is 0) and for x > 104, which Highway's does not cover.
inline FloatVec exponential(FloatVec x) {
  const FloatTag tag;
  const auto limit = hn::Set(tag, 104.0F);
  return hn::Exp(tag, hn::IfThenElse(hn::Lt(x, limit), x, limit));
}

/// As softplus of scalar_math.h. The comparison is false for NaN, which so stays NaN.
inline FloatVec vector_softplus(FloatVec x) {
  const FloatTag tag;
  return hn::IfThenElse(hn::Le(x, hn::Set(tag, 20.0F)), hn::Log1p(tag, exponential(x)), x);
}

/// As silu of scalar_math.h.
inline FloatVec vector_silu(FloatVec x) {
  return hn::Div(x, hn::Add(hn::Set(FloatTag(), 1.0F), exponential(hn::Neg(x))));
}

/// As silu_with_slope of kernels/ssd/bwd_step.h.
struct VectorSilu {
  FloatVec value, slope;
};
inline VectorSilu vector_silu_with_slope(FloatVec z) {
  const FloatTag tag;
  const auto one = hn::Set(tag, 1.0F);
  const auto small = exponential(hn::Neg(hn::Abs(z)));
  const auto scale = hn::Div(one, hn::Add(one, small));
  const auto is_negative = hn::Lt(z, hn::Zero(tag));
  const auto sigma = hn::IfThenElse(is_negative, hn::Mul(small, scale), scale);
  const auto rest = hn::IfThenElse(is_negative, scale, hn::Mul(small, scale));
  return {hn::Mul(z, sigma), hn::Mul(sigma, hn::MulAdd(z, rest, one))};
}

}  // namespace ssmbench::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
