#pragma once

#include <optional>
#include <string>

#include "model/tensor.h"
#include "record/result.h"

namespace ssmbench {

/// What kept it from passing; nothing when it did.
std::optional<Cause> cause_of_failure(const OutputComparison& comparison);

/// The same in words: "3.2 × the tolerance", "2 elements not finite", or what is wrong with the errors as a
/// whole; empty when it did.
std::string why_failed(const OutputComparison& comparison);

/// The parts of the tolerance at the worst element: what -v prints of each output.
std::string tolerance_text(const std::string& output, const OutputComparison& comparison);

/// "out at (0, 3, 17): expected 1.25, got 1.5; 12 × the tolerance", for an output that did not pass.
/// `output`, in host memory, was filled with NaN that has all bits set before it was computed.
std::string describe_failure(const std::string& name, const OutputComparison& comparison,
                             const TensorView& output);

}  // namespace ssmbench
