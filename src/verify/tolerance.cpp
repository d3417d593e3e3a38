#include "verify/tolerance.h"

#include <limits>

namespace ssmbench {

double tolerance(double expected, float bound, DType output, DType math) {
  const double underflow = std::numeric_limits<float>::min();
  return kToleranceConstant * (unit_roundoff(math) * bound + underflow) + ulp_at(expected, output) / 2;
}

}  // namespace ssmbench
