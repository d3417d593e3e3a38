#include "check/judged_output.h"

namespace ssmbench {

std::optional<std::size_t> JudgedOutput::axis(char letter) const {
  const auto found = axes.find(letter);
  return found == std::string::npos ? std::nullopt : std::optional(found);
}

std::vector<double> logical_values(const HostTensor& tensor) {
  const TensorView view = real_view(tensor.view());
  const std::int64_t count = element_count(view.shape);
  std::vector<double> values(count);
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t offset = 0;
    std::int64_t left = i;
    for (std::size_t axis = view.shape.size(); axis-- > 0;) {
      offset += left % view.shape[axis] * view.strides[axis];
      left /= view.shape[axis];
    }
    values[i] = load_as_double(view.data, offset, view.dtype);
  }
  return values;
}

JudgedOutput judge_output(const HostTensor& output, const Expectation& expected,
                          const Arithmetic& arithmetic) {
  const TensorView view = real_view(output.view());
  JudgedOutput judged{.name = output.spec.name,
                      .dtype = view.dtype,
                      .shape = view.shape,
                      .axes = output.spec.axes,
                      .got = logical_values(output),
                      .elements = {}};
  const auto count = static_cast<std::int64_t>(judged.got.size());
  judged.elements.resize(judged.got.size());
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < count; ++i)
    judged.elements[i] = judge_element(judged.got[i], expected.at(i), view.dtype, arithmetic);
  return judged;
}

}  // namespace ssmbench
