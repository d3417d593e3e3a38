#pragma once

#include <string>

#include "model/result.h"
#include "model/tensor.h"

namespace ssmbench {

/// "out at (0, 3, 17): expected 1.25, got 1.5; 12 × the tolerance", for an output that did not pass.
/// `output`, in host memory, was filled with NaN that has all bits set before it was computed.
std::string describe_failure(const std::string& name, const OutputComparison& comparison,
                             const TensorView& output);

}  // namespace ssmbench
