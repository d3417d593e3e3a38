#pragma once

#include "model/dtype.h"

namespace ssmbench {

/// The constant c of the tolerance
///     |got − expected| ≤ c·u·bound + ½ ulp(expected) + c·s
/// with u the unit roundoff of the arithmetic that the implementation claims, `bound` the first-order error
/// bound that the reference computes beside each output (reference/scan_tile_zoh.cpp), half an ulp of the
/// output's dtype for the final rounding, and s = 2^-126, the smallest normal f32, for results that underflow
/// on the way. c = 2: the bound already allows each exponential 2u, which is what the fast instructions of
/// GPUs reach; the factor leaves room for second-order terms and for a division or exponential that is off by
/// one ulp more.
inline constexpr double kToleranceConstant = 2;

/// Largest error that an honest implementation may show at one element.
double tolerance(double expected, float bound, DType output, DType math);

}  // namespace ssmbench
