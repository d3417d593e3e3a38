#pragma once

#include "model/arithmetic.h"
#include "model/expectation.h"
#include "model/result.h"
#include "model/tensor.h"

namespace ssmbench {

/// Judges one output (host memory, any layout) against what it should be, element by element, on all cores.
/// The result does not depend on the number of threads. An expected value beyond the output dtype's range
/// passes as the infinity it rounds to; an element whose bound is not finite is left out.
OutputComparison compare_output(const TensorView& output, const Expectation& expected,
                                const Arithmetic& arithmetic);

}  // namespace ssmbench
