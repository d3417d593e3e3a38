#include "reference/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "reference/common/zeros.h"

namespace ssmbench {
namespace {

std::vector<Reference>& registry() {
  static std::vector<Reference> all;
  return all;
}

const Reference& reference_of(const Problem& problem) {
  const auto found = std::ranges::find(registry(), problem.op().name, &Reference::op);
  if (found == registry().end())
    throw std::logic_error(fmt::format("{} has no reference", problem.op().name));
  return *found;
}

}  // namespace

ReferenceRegistration::ReferenceRegistration(Reference reference) {
  registry().push_back(std::move(reference));
}

ReferenceOutput empty_output(Shape shape) {
  const auto count = static_cast<std::size_t>(element_count(shape));
  return {std::move(shape), zeros<double>(count), zeros<float>(count)};
}

std::size_t output_bytes(const Problem& problem, bool (*has_third)(const TensorSpec& output)) {
  std::size_t bytes = 0;
  for (const auto& tensor : problem.tensors()) {
    if (tensor.role != Role::output) continue;
    const std::int64_t elements = element_count(tensor.shape) * (tensor.dtype == DType::c64 ? 2 : 1);
    bytes +=
        static_cast<std::size_t>(elements) * (sizeof(double) + (has_third(tensor) ? 2 : 1) * sizeof(float));
  }
  return bytes;
}

ReferenceOutputs compute_reference(const Problem& problem, const TensorSet& inputs,
                                   const std::atomic<bool>& stop) {
  return reference_of(problem).compute(problem, inputs, stop);
}

bool reference_depends_on_dtype(const Problem& problem) {
  const auto depends = reference_of(problem).depends_on_dtype;
  return depends != nullptr && depends(problem);
}

std::size_t reference_bytes(const Problem& problem) {
  return reference_of(problem).bytes(problem);
}

}  // namespace ssmbench
