#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

namespace ssmbench {

/// What one element of an output should be, and first-order bounds on the error of an honest implementation,
/// in units of its unit roundoffs.
struct ExpectedElement {
  double value = 0;
  float bound = 0;  ///< of rounding every operation
  /// The bound of rounding the operands of matrix products; nothing for an operation without them.
  std::optional<float> operand_bound = {};
  double period = 0;  ///< of values on a circle, such as angles; 0 for all others
  /// Distance of neighbours among the values that can be stored, where a scale sets it; 0: the dtype's ulp.
  double step = 0;
  bool stochastic = false;  ///< rounded to either neighbour when it is stored

  /// a − b; on a circle the shorter way round.
  double difference(double a, double b) const {
    return period > 0 && std::isfinite(a) ? std::remainder(a - b, period) : a - b;
  }
};

/// The same for a whole output, in logical order (the `bdl` column of the definition), C order; complex
/// outputs as (real, imaginary) pairs. Does not own the arrays.
struct Expectation {
  const double* values;
  const float* bound;
  const float* operand_bound = nullptr;  ///< null for an operation without matrix products
  /// What a relative error of 1 in every decay of the recurrence would do, to first order; null where the
  /// reference does not say.
  const float* decay_response = nullptr;
  double period = 0;            ///< as ExpectedElement::period
  const float* step = nullptr;  ///< as ExpectedElement::step; null where it is the dtype's ulp
  bool stochastic = false;      ///< as ExpectedElement::stochastic

  ExpectedElement at(std::int64_t position) const {
    ExpectedElement element{.value = values[position],
                            .bound = bound[position],
                            .period = period,
                            .step = step == nullptr ? 0 : step[position],
                            .stochastic = stochastic};
    if (operand_bound != nullptr) element.operand_bound = operand_bound[position];
    return element;
  }
};

}  // namespace ssmbench
