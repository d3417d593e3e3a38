#pragma once

#include <cstddef>
#include <optional>

#include "model/arithmetic.h"
#include "model/expectation.h"
#include "model/tensor.h"
#include "model/user_tolerance.h"
#include "record/result.h"

namespace ssmbench {

/// Position of the axis l.
std::optional<std::size_t> time_axis(const TensorSpec& spec);

/// Judges one output (host memory, any layout) against what it should be, element by element, on all cores.
/// The result does not depend on the number of threads. An expected value beyond the output dtype's range
/// passes as the infinity it rounds to; an element whose bound is not finite is left out. `user`, where not
/// null, takes the place of the derived tolerance. Errors over time are those along the time axis,
/// where there is one.
OutputComparison compare_output(const TensorView& output, const Expectation& expected,
                                const Arithmetic& arithmetic, const UserTolerance* user = nullptr,
                                std::optional<std::size_t> along = {});

}  // namespace ssmbench
