#include "verify/element.h"

#include <cmath>
#include <limits>

namespace ssmbench {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Whether what is stored may be this infinity: an honest result may be on either side of the number from
/// which on the dtype has none.
bool may_be_infinite(double infinity, double expected, double error, DType dtype) {
  const double largest = dtype == DType::f16 ? 65520.0 : std::numeric_limits<float>::max();
  return std::copysign(1.0, infinity) * expected + error >= largest;
}

}  // namespace

ElementVerdict judge_element(double got, const ExpectedElement& expected, DType dtype,
                             const Arithmetic& arithmetic) {
  return judge_element(got, expected, dtype, tolerance_of(expected, dtype, arithmetic));
}

ElementVerdict judge_element(double got, const ExpectedElement& expected, DType dtype,
                             const Tolerance& allowed) {
  using Kind = ElementVerdict::Kind;
  if (std::isnan(expected.value) && !std::isinf(expected.bound))  // an input is NaN
    return std::isfinite(got) ? ElementVerdict{Kind::wrong, kInfinity, kInfinity}
                              : ElementVerdict{Kind::infinite, 0, 0};
  if (!std::isfinite(expected.bound)) return {Kind::left_out, 0, 0};
  if (!std::isfinite(got)) {
    if (std::isinf(got) && may_be_infinite(got, expected.value, allowed.arithmetic, dtype))
      return {Kind::infinite, 0, 0};
    return {Kind::wrong, kInfinity, kInfinity};
  }
  const double error = std::abs(expected.difference(got, expected.value));
  const double ratio = error == 0 ? 0 : error / allowed.total();  // a config may allow nothing
  return {Kind::measured, error, std::isnan(ratio) ? kInfinity : ratio, allowed};
}

}  // namespace ssmbench
