#pragma once

#include <string>

#include "model/result.h"

// Comparisons in words.

namespace ssmbench {

/// Why it did not pass: "3.2 × the tolerance", "2 elements not finite", "errors 1.6 × what rounding makes
/// them in the root mean square", …; empty when it did.
std::string why_failed(const OutputComparison& comparison);

/// The parts of the tolerance at the worst element: what -v prints of each output.
std::string tolerance_text(const std::string& output, const OutputComparison& comparison);

}  // namespace ssmbench
