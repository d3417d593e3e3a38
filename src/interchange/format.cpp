#include "interchange/format.h"

#include <algorithm>

namespace ssmbench {

std::vector<TensorSpec> tensors_of(const Problem& problem, Role role) {
  auto specs = problem.tensors();
  std::erase_if(specs, [role](const TensorSpec& spec) { return spec.role != role; });
  return specs;
}

std::vector<TensorSpec> reference_tensors_of(const Problem& problem) {
  auto specs = tensors_of(problem, Role::output);
  for (auto& spec : specs) {
    if (spec.dtype == DType::c64) {
      spec.storage_order.push_back(static_cast<int>(spec.shape.size()));
      spec.shape.push_back(2);
    }
    spec.dtype = DType::f64;
  }
  return specs;
}

}  // namespace ssmbench
