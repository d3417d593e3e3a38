#pragma once

#include "model/arithmetic.h"
#include "model/expectation.h"

// The tolerances that outputs are judged by; docs/tolerances.md derives them.

namespace ssmbench {

/// The constant c of the tolerance
///     |got − expected| ≤ c·(u·bound + v·operand_bound + s) + ½ ulp(expected)
/// with u the unit roundoff of the arithmetic that the implementation claims, `bound` the first-order error
/// bound that the reference computes beside each output, half an ulp of the output's dtype for the final
/// rounding, and s = 2^-126, the smallest normal f32, for results that underflow on the way.
///
/// For operations of matrix products u is that of f32, in which they are summed, and v that of their operands
/// where it is coarser: operand_bound says what roundings of operands do. c = 2: the bound already allows each
/// exponential 2u, which is what the fast instructions of GPUs reach; the factor leaves room for second-order
/// terms and for a division or exponential that is off by one ulp more.
inline constexpr double kToleranceConstant = 2;

/// The parts of an element's tolerance.
struct Tolerance {
  double arithmetic;  ///< c·(u·bound + v·operand_bound + s)
  double storage;     ///< half of `spacing`, or all of it where rounding is stochastic

  double total() const { return arithmetic + storage; }
};

/// Distance of neighbours among the values that can be stored, at the expected one: an ulp of the output's
/// dtype, or the step that a scale sets.
double spacing(const ExpectedElement& expected, DType output);

/// Largest error that an honest implementation may show at one element.
Tolerance tolerance_of(const ExpectedElement& expected, DType output, const Arithmetic& arithmetic);

inline double tolerance(const ExpectedElement& expected, DType output, const Arithmetic& arithmetic) {
  return tolerance_of(expected, output, arithmetic).total();
}

}  // namespace ssmbench
