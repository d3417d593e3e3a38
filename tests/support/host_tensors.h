#pragma once

#include <atomic>
#include <functional>
#include <vector>

#include "model/problem.h"
#include "model/tensor.h"

namespace ssmbench::test {

inline const std::atomic<bool> never_stop{false};

inline std::vector<TensorSpec> specs_of(const Problem& problem, Role role) {
  std::vector<TensorSpec> chosen;
  for (auto& spec : problem.tensors())
    if (spec.role == role) chosen.push_back(std::move(spec));
  return chosen;
}

/// Inputs of the problem with value(tensor name, row-major logical position); the layout is taken care of.
inline std::vector<HostTensor> make_inputs(
    const Problem& problem, const std::function<double(const std::string&, std::int64_t)>& value) {
  std::vector<HostTensor> tensors;
  for (auto& spec : specs_of(problem, Role::input)) {
    HostTensor tensor(spec);
    const Shape strides = spec.strides();
    for (std::int64_t i = 0; i < element_count(spec.shape); ++i) {
      std::int64_t rest = i;
      std::int64_t offset = 0;
      for (std::size_t axis = spec.shape.size(); axis-- > 0; rest /= spec.shape[axis])
        offset += rest % spec.shape[axis] * strides[axis];
      store_from_double(tensor.buffer.data(), offset, spec.dtype, value(spec.name, i));
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace ssmbench::test
