#pragma once

#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "model/problem.h"
#include "model/tensor.h"

namespace ssmbench {

/// Runs the implementation that computes the parts: inputs to outputs, all in host memory.
using RunPart = std::function<std::vector<HostTensor>(const Problem&, const std::vector<HostTensor>& inputs)>;

/// The implementation cannot compute a part, and why.
struct UnsupportedPart : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A way to get the outputs of a problem from smaller or simpler problems, as those who serve models do.
struct PartwiseComputation {
  std::string check;     ///< its name in configs: "steps"
  std::string op;        ///< of the whole problem
  std::string parts_op;  ///< of the parts
  std::string summary;
  /// Why the parts of this problem do not add up to it; nothing when they do.
  std::optional<std::string> (*inapplicable)(const Problem& whole);
  /// The outputs of the whole problem, in its order.
  std::vector<HostTensor> (*compute)(const Problem& whole, const std::vector<HostTensor>& inputs,
                                     const RunPart& run);
};

/// Every one there is.
const std::vector<PartwiseComputation>& partwise_computations();

/// Null where the operation has no such check.
const PartwiseComputation* find_partwise(std::string_view check, std::string_view op);

// One per file parts_*.cpp.
PartwiseComputation scan_in_steps();
PartwiseComputation scan_in_halves();
PartwiseComputation heads_as_channels();
PartwiseComputation ssd_in_steps();
PartwiseComputation ssd_in_halves();
PartwiseComputation ssd_in_sequences();
PartwiseComputation ssd_as_scan();

}  // namespace ssmbench
