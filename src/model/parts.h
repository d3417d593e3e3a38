#pragma once

#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "model/tensor.h"

namespace ssmbench {

class Problem;

/// Runs the implementation that computes the parts: inputs to outputs, all in host memory.
using RunPart = std::function<std::vector<HostTensor>(const Problem&, const std::vector<HostTensor>& inputs)>;

/// The implementation cannot compute a part, and why.
struct UnsupportedPart : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A way to get the outputs of a problem from smaller or simpler problems, as programs that serve models do.
/// Consistency studies compare the two.
struct PartwiseComputation {
  std::string check;     ///< its name in configs: "steps"
  std::string parts_op;  ///< operation of the parts
  std::string summary;
  /// Why the parts of this problem do not add up to it; nothing when they do.
  std::optional<std::string> (*inapplicable)(const Problem& whole);
  /// The outputs of the whole problem, in its order.
  std::vector<HostTensor> (*compute)(const Problem& whole, const std::vector<HostTensor>& inputs,
                                     const RunPart& run);
};

}  // namespace ssmbench
