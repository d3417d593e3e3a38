#pragma once

#include <string>
#include <vector>

#include "model/problem.h"
#include "model/tensor.h"
#include "plugins/ssmbench_plugin.h"

namespace ssmbench {

/// A problem as plugins see it, and the memory that it points into.
class PluginProblem {
 public:
  /// Without values: tensors have no data.
  explicit PluginProblem(const Problem& problem);
  /// With the data of `tensors`, which holds every tensor of the problem.
  PluginProblem(const Problem& problem, const TensorSet& tensors);
  ~PluginProblem() = default;
  PluginProblem(const PluginProblem&) = delete;
  PluginProblem& operator=(const PluginProblem&) = delete;
  PluginProblem(PluginProblem&&) = delete;
  PluginProblem& operator=(PluginProblem&&) = delete;

  const ssmbench_problem& view() const { return view_; }

 private:
  struct Axis {
    std::string name, text;
  };

  std::string op_;
  std::vector<TensorSpec> specs_;  ///< one per name
  std::vector<Shape> strides_;
  std::vector<ssmbench_tensor> tensors_;
  std::vector<Axis> axes_;
  std::vector<ssmbench_attribute> attributes_;
  ssmbench_problem view_{};
};

}  // namespace ssmbench
