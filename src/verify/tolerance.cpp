#include "verify/tolerance.h"

#include <limits>

namespace ssmbench {

double spacing(const ExpectedElement& expected, DType output) {
  return expected.step > 0 ? expected.step : ulp_at(expected.value, output);
}

Tolerance tolerance_of(const ExpectedElement& expected, DType output, const Arithmetic& arithmetic) {
  const double underflow = std::numeric_limits<float>::min();
  double error = unit_roundoff(arithmetic.math) * expected.bound;
  if (expected.operand_bound) {
    const double roundoff = unit_roundoff(arithmetic.math == Math::f64 ? Math::f64 : Math::f32);
    const double operand_roundoff = arithmetic.operand_roundoff();
    error = roundoff * expected.bound;
    if (operand_roundoff > roundoff) error += operand_roundoff * *expected.operand_bound;
  }
  error = kToleranceConstant * (error + underflow);
  return {error, expected.stochastic ? spacing(expected, output) : spacing(expected, output) / 2};
}

}  // namespace ssmbench
