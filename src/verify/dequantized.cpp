#include "verify/dequantized.h"

#include <stdexcept>

#include "model/tensor_map.h"

namespace ssmbench {

std::optional<HostTensor> dequantized(const HostTensor& tensor, const std::vector<HostTensor>& all) {
  if (tensor.spec.scaled_by.empty()) return {};
  const HostTensor* scales = find_tensor(all, tensor.spec.scaled_by);
  if (scales == nullptr) throw std::logic_error(tensor.spec.name + " without " + tensor.spec.scaled_by);
  TensorSpec spec = tensor.spec;
  spec.dtype = DType::f64;
  HostTensor values(std::move(spec));

  const TensorView from = tensor.view();
  const TensorView scale = scales->view();
  auto* const to = static_cast<double*>(values.buffer.data());
  const std::int64_t count = from.shape.back();
  const std::int64_t rows = element_count(scale.shape);
  constexpr std::int64_t kWorthThreads = 1 << 16;
#pragma omp parallel for schedule(static) if (rows * count > kWorthThreads)
  for (std::int64_t row = 0; row < rows; ++row) {
    Shape index = index_of(row, scale.shape);
    const double unit = load_as_double(scale.data, offset_of(index, scale.strides), scale.dtype);
    index.push_back(0);
    std::int64_t at = offset_of(index, from.strides);
    for (std::int64_t i = 0; i < count; ++i, at += from.strides.back())
      to[at] = load_as_double(from.data, at, from.dtype) * unit;
  }
  return values;
}

}  // namespace ssmbench
