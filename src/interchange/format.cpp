#include "interchange/format.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/errors.h"

namespace ssmbench {

void reject_file(const std::string& file, const std::string& where, const std::string& what) {
  std::string message =
      where.empty() ? fmt::format("{}: {}", file, what) : fmt::format("{}: {}: {}", file, where, what);
  const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7F; };
  std::ranges::replace_if(message, is_control, '?');
  throw UsageError(message);
}

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

const StoredInput& StoredInputs::at(const std::string& name) const {
  const auto found = inputs_.find(name);
  if (found == inputs_.end()) reject(name, "the dataset is missing");
  return found->second;
}

const Shape& StoredInputs::shape(const std::string& name, std::size_t rank) const {
  const Shape& found = at(name).shape;
  if (found.size() != rank) reject(name, fmt::format("expected {} axes, found {}", rank, found.size()));
  return found;
}

void StoredInputs::reject(const std::string& name, const std::string& what) const {
  reject_file(file_, group_ + "/" + name, what);
}

const OpFormat* find_format(std::string_view op) {
  static const std::vector<const OpFormat*> formats{
      &selective_scan_fwd_format(), &selective_scan_bwd_format(), &linear_scan_format(),
      &ssd_chunk_scan_fwd_format(), &ssd_chunk_scan_bwd_format(), &selective_state_update_format()};
  const auto found = std::ranges::find(formats, op, [](const OpFormat* format) { return format->op.name; });
  return found == formats.end() ? nullptr : *found;
}

}  // namespace ssmbench
