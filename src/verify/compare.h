#pragma once

#include "model/arithmetic.h"
#include "model/result.h"
#include "model/tensor.h"

namespace ssmbench {

/// What an output should be and how far it may be from it: arrays in logical order, as reference/reference.h
/// has them.
struct Expectation {
  const double* values;
  const float* bound;
  const float* operand_bound = nullptr;  ///< null for operations without matrix products
};

/// Judges one output (host memory, any layout) against what it should be, element by element, on all cores.
/// The result does not depend on the number of threads. An expected value beyond the output dtype's range
/// passes as the infinity it rounds to; an element whose bound is not finite is left out.
OutputComparison compare_output(const TensorView& output, const Expectation& expected,
                                const Arithmetic& arithmetic);

}  // namespace ssmbench
