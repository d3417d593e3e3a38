#include "model/stored_inputs.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/errors.h"

namespace ssmbench {

void reject_file(const std::string& file, const std::string& where, const std::string& what) {
  std::string message =
      where.empty() ? fmt::format("{}: {}", file, what) : fmt::format("{}: {}: {}", file, where, what);
  const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7F; };
  std::ranges::replace_if(message, is_control, '?');
  throw UsageError(message);
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

}  // namespace ssmbench
