#include "verify/element.h"

#include <cmath>
#include <limits>

namespace ssmbench {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The value that `expected` takes in the output's dtype when it is out of its range, else itself.
double in_range(double expected, DType dtype) {
  const double largest = dtype == DType::f16 ? 65520.0 : std::numeric_limits<float>::max();
  if (std::abs(expected) < largest) return expected;
  return std::copysign(kInfinity, expected);
}

}  // namespace

ElementVerdict judge_element(double got, const ExpectedElement& expected, DType dtype,
                             const Arithmetic& arithmetic) {
  return judge_element(got, expected, dtype, tolerance_of(expected, dtype, arithmetic));
}

ElementVerdict judge_element(double got, const ExpectedElement& expected, DType dtype,
                             const Tolerance& allowed) {
  using Kind = ElementVerdict::Kind;
  if (!std::isfinite(expected.bound)) return {Kind::left_out, 0, 0};
  if (!std::isfinite(got)) {
    if (got == in_range(expected.value, dtype)) return {Kind::infinite, 0, 0};
    return {Kind::wrong, kInfinity, kInfinity};
  }
  const double error = std::abs(expected.difference(got, expected.value));
  const double ratio = error == 0 ? 0 : error / allowed.total();  // a config may allow nothing
  return {Kind::measured, error, std::isnan(ratio) ? kInfinity : ratio, allowed};
}

}  // namespace ssmbench
