#include "inputs/unnamed_slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "model/problem.h"
#include "model/tensor_map.h"

namespace ssmbench {
namespace {

constexpr int kGarbage = 0xFF;  // NaN in every float type

/// Whether a tensor is updated in place and has slots.
bool is_cache(const TensorSpec& spec, const std::vector<TensorSpec>& all) {
  return spec.role == Role::output && spec.axes.front() == kSlotLetter &&
         std::ranges::any_of(all, [&](const TensorSpec& other) {
           return other.role == Role::input && other.name == spec.name;
         });
}

std::vector<bool> named_slots(const std::vector<HostTensor>& inputs,
                              std::initializer_list<const char*> indices, std::int64_t slots) {
  std::vector<bool> named(static_cast<std::size_t>(slots));
  for (const char* name : indices) {
    const HostTensor* tensor = find_tensor(inputs, name);
    if (tensor == nullptr) continue;
    const auto* values = static_cast<const std::int32_t*>(tensor->buffer.data());
    for (std::int64_t i = 0; i < element_count(tensor->spec.shape); ++i)
      if (values[i] >= 0) named[static_cast<std::size_t>(values[i])] = true;
  }
  return named;
}

/// The bytes of each slot. Slots are outermost, whatever the layout.
template <class Visit>
void for_each_unnamed(const HostTensor& cache, const std::vector<bool>& named, const Visit& visit) {
  const std::size_t bytes = cache.spec.bytes() / named.size();
  for (std::size_t slot = 0; slot < named.size(); ++slot)
    if (!named[slot]) visit(slot, static_cast<std::byte*>(cache.buffer.data()) + slot * bytes, bytes);
}

}  // namespace

std::optional<std::string> no_slots(const Problem& problem) {
  const auto tensors = problem.tensors();
  if (std::ranges::none_of(tensors, [&](const TensorSpec& spec) { return is_cache(spec, tensors); }))
    return "states are those of the batch, without slots";
  return {};
}

std::vector<HostTensor> run_with_garbage_in_unnamed_slots(const Problem& whole,
                                                          const std::vector<HostTensor>& inputs,
                                                          const RunPart& run,
                                                          std::initializer_list<const char*> indices) {
  const auto tensors = whole.tensors();
  std::vector<HostTensor> changed;
  for (const auto& input : inputs) changed.push_back(gathered(input.spec, input, same_index));
  const auto for_each_cache = [&](std::vector<HostTensor>& in, const auto& visit) {
    for (auto& tensor : in)
      for (const auto& spec : tensors)
        if (spec.name == tensor.spec.name && is_cache(spec, tensors))
          visit(tensor, named_slots(inputs, indices, spec.shape[0]));
  };
  for_each_cache(changed, [](HostTensor& cache, const std::vector<bool>& named) {
    for_each_unnamed(cache, named, [](std::size_t, std::byte* data, std::size_t bytes) {
      std::memset(data, kGarbage, bytes);
    });
  });
  auto outputs = run(whole, changed);
  for_each_cache(outputs, [&](HostTensor& cache, const std::vector<bool>& named) {
    const auto* before = static_cast<const std::byte*>(find_tensor(inputs, cache.spec.name)->buffer.data());
    for_each_unnamed(cache, named, [&](std::size_t slot, std::byte* data, std::size_t bytes) {
      if (std::any_of(data, data + bytes, [](std::byte b) { return b != std::byte{kGarbage}; }))
        throw std::runtime_error(
            fmt::format("slot {} of {}, which is unused, does not keep its bits", slot, cache.spec.name));
      std::memcpy(data, before + slot * bytes, bytes);
    });
  });
  return outputs;
}

}  // namespace ssmbench
