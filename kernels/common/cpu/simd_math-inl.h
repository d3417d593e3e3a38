// The elementwise functions of a scan on vectors. Compiled once per instruction set.

#if defined(SSMBENCH_SIMD_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SSMBENCH_SIMD_MATH_INL_H
#undef SSMBENCH_SIMD_MATH_INL_H
#else
#define SSMBENCH_SIMD_MATH_INL_H
#endif

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "kernels/common/cpu/simd_matrix-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ssmbench::simd::HWY_NAMESPACE {

/// x, or the bound that it is beyond; NaN if x is.
inline FloatVec within(FloatVec low, FloatVec x, FloatVec high) {
#if HWY_ARCH_X86 && HWY_TARGET < HWY_EMU128  // their instructions return the second argument if one is NaN
  return hn::Min(high, hn::Max(low, x));
#else
  x = hn::IfThenElse(hn::Lt(x, low), low, x);
  return hn::IfThenElse(hn::Gt(x, high), high, x);
#endif
}

/// e^x within 1.3 roundoffs; 0 where that is under 2^-125.5. With x = n·ln 2 + r it is 2^(n-1)·2e^r. Rounding
/// to n and making 2^(n-1) take an instruction each: adding 1.5·2^23 rounds to a whole number and leaves it
/// in the low bits, 126 more bias the exponent by 127 - 1. 2e^r is a polynomial fitted to the relative error
/// (3e-9) over |r| ≤ ln(2)/2, exact at 0; doubled so that it overflows only where e^x does.
inline FloatVec exponential(FloatVec x) {
  const FloatTag tag;
  const hn::RebindToUnsigned<FloatTag> bits;
  const auto rounder = hn::Set(tag, 0x1.8p23F + 126);
  x = within(hn::Set(tag, -87.5F), x, hn::Set(tag, 89.0F));  // beyond that n would not fit an exponent
  const auto rounded = hn::MulAdd(x, hn::Set(tag, 1.44269504F), rounder);
  const auto n = hn::Sub(rounded, rounder);
  auto r = hn::NegMulAdd(n, hn::Set(tag, 0x1.62e4p-1F), x);  // exact: 15 bits of ln 2, then the rest
  r = hn::NegMulAdd(n, hn::Set(tag, 0x1.7f7d1cp-20F), r);
  auto e = hn::Set(tag, 2 * 0x1.6a2416p-10F);
  for (const float c : {0x1.1239f4p-7F, 0x1.5558f2p-5F, 0x1.555492p-3F, 0x1.fffffcp-2F, 1.0F, 1.0F})
    e = hn::MulAdd(e, r, hn::Set(tag, 2 * c));
  return hn::Mul(e, hn::BitCast(tag, hn::ShiftLeft<23>(hn::BitCast(bits, rounded))));
}

/// log(1 + t) of t in [0, 1] within 1.8 roundoffs: t + t²·Q(t), fitted to the relative error (1e-9).
inline FloatVec log1p_of_unit(FloatVec t) {
  const FloatTag tag;
  auto q = hn::Set(tag, 0x1.0eb0acp-9F);
  for (const float c : {-0x1.bd7388p-7F, 0x1.574948p-5F, -0x1.53ebap-4F, 0x1.fe6abcp-4F, -0x1.4a47aep-3F,
                        0x1.977f6p-3F, -0x1.ffc3bp-3F, 0x1.5553a2p-2F, -0x1.fffff8p-2F})
    q = hn::MulAdd(q, t, hn::Set(tag, c));
  return hn::MulAdd(hn::Mul(q, t), t, t);
}

/// softplus and its derivative, σ(x), from one exponential.
struct VectorSoftplus {
  FloatVec value, slope;
};
inline VectorSoftplus vector_softplus_with_slope(FloatVec x) {
  const FloatTag tag;
  const auto one = hn::Set(tag, 1.0F);
  const auto small = exponential(hn::Neg(hn::Abs(x)));
  const auto scale = hn::Div(one, hn::Add(one, small));
  const auto is_negative = hn::Lt(x, hn::Zero(tag));
  return {hn::Add(hn::Max(x, hn::Zero(tag)), log1p_of_unit(small)),
          hn::IfThenElse(is_negative, hn::Mul(small, scale), scale)};
}
inline FloatVec vector_softplus(FloatVec x) {
  return vector_softplus_with_slope(x).value;
}

/// As silu of scalar_math.h.
inline FloatVec vector_silu(FloatVec x) {
  return hn::Div(x, hn::Add(hn::Set(FloatTag(), 1.0F), exponential(hn::Neg(x))));
}

/// With its slope, as the gradients need it.
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
