#include "verify/tolerance.h"

#include <limits>

namespace ssmbench {

double tolerance(double expected, const ErrorBounds& bounds, DType output, const Arithmetic& arithmetic) {
  const double underflow = std::numeric_limits<float>::min();
  double error = unit_roundoff(arithmetic.math) * bounds.of_operations;
  if (bounds.of_operands) {
    const double roundoff = unit_roundoff(arithmetic.math == Math::f64 ? Math::f64 : Math::f32);
    const double operand_roundoff = arithmetic.operand_roundoff();
    error = roundoff * bounds.of_operations;
    if (operand_roundoff > roundoff) error += operand_roundoff * *bounds.of_operands;
  }
  return kToleranceConstant * (error + underflow) + ulp_at(expected, output) / 2;
}

}  // namespace ssmbench
