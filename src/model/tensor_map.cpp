#include "model/tensor_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/errors.h"

namespace ssmbench {
namespace {

void check_alike(const TensorSpec& a, const TensorSpec& b) {
  if (a.dtype != b.dtype)
    throw ContractError(
        fmt::format("tensor '{}' is {}, '{}' is {}", a.name, name_of(a.dtype), b.name, name_of(b.dtype)));
}

/// Calls visit(index, other index) for every index of `shape`, in row-major order.
template <class Visit>
void for_each_index(const Shape& shape, std::size_t other_rank, const IndexMap& map, const Visit& visit) {
  Shape index(shape.size(), 0);
  Shape other(other_rank, 0);
  for (std::int64_t left = element_count(shape); left > 0; --left) {
    map(index, other);
    visit(index, other);
    for (std::size_t axis = index.size(); axis-- > 0;) {
      if (++index[axis] < shape[axis]) break;
      index[axis] = 0;
    }
  }
}

}  // namespace

HostTensor gathered(const TensorSpec& spec, const HostTensor& from, const IndexMap& index_in_from) {
  check_alike(spec, from.spec);
  HostTensor to(spec);
  const std::size_t size = size_of(spec.dtype);
  const Shape to_strides = spec.strides();
  const Shape from_strides = from.spec.strides();
  auto* const to_bytes = static_cast<std::byte*>(to.buffer.data());
  const auto* const from_bytes = static_cast<const std::byte*>(from.buffer.data());
  for_each_index(spec.shape, from.spec.shape.size(), index_in_from,
                 [&](const Shape& here, const Shape& there) {
                   std::memcpy(to_bytes + offset_of(here, to_strides) * size,
                               from_bytes + offset_of(there, from_strides) * size, size);
                 });
  return to;
}

void scatter(const HostTensor& from, HostTensor& into, const IndexMap& index_in_into) {
  check_alike(from.spec, into.spec);
  const std::size_t size = size_of(into.spec.dtype);
  const Shape into_strides = into.spec.strides();
  const Shape from_strides = from.spec.strides();
  auto* const into_bytes = static_cast<std::byte*>(into.buffer.data());
  const auto* const from_bytes = static_cast<const std::byte*>(from.buffer.data());
  for_each_index(from.spec.shape, into.spec.shape.size(), index_in_into,
                 [&](const Shape& here, const Shape& there) {
                   std::memcpy(into_bytes + offset_of(there, into_strides) * size,
                               from_bytes + offset_of(here, from_strides) * size, size);
                 });
}

void same_index(const Shape& here, Shape& there) {
  there = here;
}

HostTensor zeros(const TensorSpec& spec) {
  HostTensor tensor(spec);
  std::memset(tensor.buffer.data(), 0, spec.bytes());
  return tensor;
}

std::vector<HostTensor> blank_outputs(const Problem& problem) {
  std::vector<HostTensor> outputs;
  for (const auto& spec : problem.tensors()) {
    if (spec.role != Role::output) continue;
    outputs.emplace_back(spec);
    std::memset(outputs.back().buffer.data(), 0xFF, spec.bytes());
  }
  return outputs;
}

const HostTensor* find_tensor(const std::vector<HostTensor>& tensors, std::string_view name) {
  const auto found =
      std::ranges::find(tensors, name, [](const HostTensor& tensor) { return tensor.spec.name; });
  return found == tensors.end() ? nullptr : &*found;
}

}  // namespace ssmbench
