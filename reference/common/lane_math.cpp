// Compiled for every instruction set that Highway knows and chosen at run time.

#include "reference/common/lane_math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reference/common/lane_math.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace ssmbench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Calls function(lanes, vector) for all of x.
template <class Function>
void for_all(const double* x, std::int64_t count, double* to, const Function& function) {
  const hn::ScalableTag<double> lanes;
  const auto width = static_cast<std::int64_t>(hn::Lanes(lanes));
  std::int64_t i = 0;
  for (; i + width <= count; i += width) hn::StoreU(function(lanes, hn::LoadU(lanes, x + i)), lanes, to + i);
  const hn::CappedTag<double, 1> one;
  for (; i < count; ++i) hn::StoreU(function(one, hn::LoadU(one, x + i)), one, to + i);
}

/// e^x; 0 below e^-708, e^709 above that. With x = n·ln 2 + r it is 2^(n-1)·2e^r. Adding 1.5·2^52 rounds to a
/// whole number and leaves it in the low bits, 1022 more bias the exponent of 2^(n-1), whose number is 0
/// where n = -1022. 2e^r is a polynomial fitted to the relative error (3e-17) over |r| ≤ ln(2)/2.
template <class Lanes, class Vector>
HWY_INLINE Vector exponential(Lanes lanes, Vector x) {
  const hn::RebindToUnsigned<Lanes> bits;
  const auto rounder = hn::Set(lanes, 0x1.8p52 + 1022);
  const auto within = hn::Min(hn::Max(x, hn::Set(lanes, -708.7)), hn::Set(lanes, 709.0));
  const auto rounded = hn::MulAdd(within, hn::Set(lanes, 0x1.71547652b82fep0), rounder);
  const auto n = hn::Sub(rounded, rounder);
  // Exact: the first part of ln 2 has 33 bits.
  auto r = hn::NegMulAdd(n, hn::Set(lanes, 0x1.62e42feep-1), within);
  r = hn::NegMulAdd(n, hn::Set(lanes, 0x1.a39ef35793c76p-33), r);
  auto e = hn::Set(lanes, 2 * 0x1.a6c9d45ea1974p-26);
  for (const double c : {0x1.2893a82b1de9ep-22, 0x1.71e312aebc2d7p-19, 0x1.a019b838e8019p-16,
                         0x1.a019ffa08795ap-13, 0x1.6c16c1786d852p-10, 0x1.1111111161173p-7,
                         0x1.5555555553e1ap-5, 0x1.5555555555462p-3, 0x1.0000000000001p-1, 1.0, 1.0})
    e = hn::MulAdd(e, r, hn::Set(lanes, 2 * c));
  const auto power = hn::BitCast(lanes, hn::ShiftLeft<52>(hn::BitCast(bits, rounded)));
  return hn::IfThenElse(hn::Eq(x, x), hn::Mul(e, power), x);
}

void exp_all(const double* x, std::int64_t count, double* to) {
  for_all(x, count, to, [](auto lanes, auto value) HWY_ATTR { return exponential(lanes, value); });
}

void exp_all_of_minus_size(const double* x, std::int64_t count, double* to) {
  for_all(x, count, to,
          [](auto lanes, auto value) HWY_ATTR { return exponential(lanes, hn::Neg(hn::Abs(value))); });
}

void sine_all(const double* x, std::int64_t count, double* to) {
  for_all(x, count, to, [](auto lanes, auto value) HWY_ATTR { return hn::Sin(lanes, value); });
}

void cosine_all(const double* x, std::int64_t count, double* to) {
  for_all(x, count, to, [](auto lanes, auto value) HWY_ATTR { return hn::Cos(lanes, value); });
}

void log1p_all(const double* x, std::int64_t count, double* to) {
  for_all(x, count, to, [](auto lanes, auto value) HWY_ATTR {
    return hn::IfThenElse(hn::Eq(value, value), hn::Log1p(lanes, value), value);
  });
}

}  // namespace ssmbench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ssmbench {

HWY_EXPORT(exp_all);
HWY_EXPORT(exp_all_of_minus_size);
HWY_EXPORT(log1p_all);
HWY_EXPORT(sine_all);
HWY_EXPORT(cosine_all);

namespace {

/// Where Highway's reduction of arguments is not exact enough; also NaN.
bool is_far(double x) {
  constexpr double kFar = 30000;
  return !(std::abs(x) <= kFar);
}

}  // namespace

void exp_of(const double* x, std::int64_t count, double* to) {
  HWY_DYNAMIC_DISPATCH(exp_all)(x, count, to);
}
void exp_of_minus_size(const double* x, std::int64_t count, double* to) {
  HWY_DYNAMIC_DISPATCH(exp_all_of_minus_size)(x, count, to);
}
void sine_of(const double* x, std::int64_t count, double* to) {
  HWY_DYNAMIC_DISPATCH(sine_all)(x, count, to);
  for (std::int64_t i = 0; i < count; ++i)
    if (is_far(x[i])) to[i] = std::sin(x[i]);
}
void cosine_of(const double* x, std::int64_t count, double* to) {
  HWY_DYNAMIC_DISPATCH(cosine_all)(x, count, to);
  for (std::int64_t i = 0; i < count; ++i)
    if (is_far(x[i])) to[i] = std::cos(x[i]);
}
void log1p_of(const double* x, std::int64_t count, double* to) {
  HWY_DYNAMIC_DISPATCH(log1p_all)(x, count, to);
}

}  // namespace ssmbench
#endif
