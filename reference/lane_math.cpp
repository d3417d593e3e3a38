// Compiled for every instruction set that Highway knows and chosen at run time.

#include "reference/lane_math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reference/lane_math.cpp"
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

void exp_all(const double* x, std::int64_t count, double* to) {
  for_all(x, count, to, [](auto lanes, auto value) HWY_ATTR {
    // Highway's exponents wrap around where e^x overflows.
    const auto e = hn::Exp(lanes, hn::Min(value, hn::Set(lanes, 709.0)));
    return hn::IfThenElse(hn::Eq(value, value), e, value);
  });
}

void exp_all_of_minus_size(const double* x, std::int64_t count, double* to) {
  for_all(x, count, to, [](auto lanes, auto value) HWY_ATTR {
    const auto e = hn::Exp(lanes, hn::Neg(hn::Abs(value)));
    return hn::IfThenElse(hn::Eq(value, value), e, value);
  });
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
