#pragma once

#include "model/arithmetic.h"
#include "model/expectation.h"

namespace ssmbench {

/// The constant c of the tolerance
///     |got − expected| ≤ c·u·bound + c·v·operand_bound + ½ ulp(expected) + c·s
/// with u the unit roundoff of the arithmetic that the implementation claims, `bound` the first-order error
/// bound that the reference computes beside each output (reference/scan_tile_zoh.cpp), half an ulp of the
/// output's dtype for the final rounding, and s = 2^-126, the smallest normal f32, for results that underflow
/// on the way. For operations of matrix products u is that of f32, in which they are summed, and v that of
/// their operands where it is coarser: operand_bound says what roundings of operands do. c = 2: the bound
/// already allows each exponential 2u, which is what the fast instructions of GPUs reach; the factor leaves
/// room for second-order terms and for a division or exponential that is off by one ulp more.
inline constexpr double kToleranceConstant = 2;

/// Largest error that an honest implementation may show at one element.
double tolerance(const ExpectedElement& expected, DType output, const Arithmetic& arithmetic);

}  // namespace ssmbench
