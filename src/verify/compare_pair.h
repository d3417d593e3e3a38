#pragma once

#include "model/arithmetic.h"
#include "model/expectation.h"
#include "model/tensor.h"
#include "record/result.h"

namespace ssmbench {

/// Compares two values of one output (host memory, any layout): two honest implementations differ by at most
/// the sum of their tolerances (verify/tolerance.h), which tolerance_ratio is in units of. worst_expected is
/// the value of `a`, worst_got that of `b`; rel_l2 is relative to what is expected. Elements whose bound is
/// not finite are left out; infinities of one sign are equal.
OutputComparison compare_pair(const TensorView& a, const TensorView& b, const Expectation& expected,
                              const Arithmetic& arithmetic_of_a, const Arithmetic& arithmetic_of_b);

}  // namespace ssmbench
