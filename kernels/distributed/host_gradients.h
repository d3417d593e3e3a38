#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/distributed/state_gradients.h"
#include "model/implementation.h"
#include "model/problem.h"

namespace ssmbench {

/// What gradients on CPU ranks need to know of an operation. Their names are those of its tensors.
struct ShardedGradients {
  const char* op;
  const char* state;        ///< the input of the state before the first step
  const char* dlast_state;  ///< the input of the gradient of the last one
  const char* dlast_axis;   ///< the flag that says whether there is one
  const char* numbers;      ///< an input that numbers sequences, rebased in shards; null where there is none
  std::vector<const char*> sums_over_time;  ///< outputs that may be sums over time
  std::optional<std::string> (*unsupported)(const Problem& whole);
  ShardSizes (*sizes)(const Problem& part);
  /// The forward scan of a part of the gradients' problem, for its states.
  std::unique_ptr<LocalScan> (*scan)(const Problem& part, const TensorSet& tensors);
  /// Takes a gradient of states through the steps of a part, last to first.
  std::function<void(const float* leaving, float* entering)> (*go_back)(const Problem& part,
                                                                        const TensorSet& tensors);
};

/// Registers cpu-twopass of an operation (state_gradients.h), whose gradients are those of cpu-simd where it
/// does the problem, else cpu-scalar's.
struct HostGradientRegistration {
  explicit HostGradientRegistration(const ShardedGradients& operation);
};

}  // namespace ssmbench
