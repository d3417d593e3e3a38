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

/// Offset of the element at row-major logical position `i`.
inline std::int64_t offset_in(const TensorView& view, std::int64_t i) {
  std::int64_t offset = 0;
  for (std::size_t axis = view.shape.size(); axis-- > 0; i /= view.shape[axis])
    offset += i % view.shape[axis] * view.strides[axis];
  return offset;
}

/// Inputs of the problem with value(tensor name, row-major logical position); the layout is taken care of.
/// Complex tensors count (real, imaginary) as a last axis.
inline std::vector<HostTensor> make_inputs(
    const Problem& problem, const std::function<double(const std::string&, std::int64_t)>& value) {
  std::vector<HostTensor> tensors;
  for (auto& spec : specs_of(problem, Role::input)) {
    const HostTensor& tensor = tensors.emplace_back(spec);
    const TensorView view = real_view(tensor.view());
    for (std::int64_t i = 0; i < element_count(view.shape); ++i)
      store_from_double(view.data, offset_in(view, i), view.dtype, value(spec.name, i));
  }
  return tensors;
}

}  // namespace ssmbench::test
