#include "check/named_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "inputs/packed_sequences.h"
#include "inputs/unnamed_slots.h"
#include "model/tensor_map.h"

namespace ssmbench {
namespace {

std::span<const std::int32_t> values_of(const HostTensor& tensor) {
  return {static_cast<const std::int32_t*>(tensor.buffer.data()),
          static_cast<std::size_t>(element_count(tensor.spec.shape))};
}

/// Steps that are wrong, by the sequences they are in.
std::string about_sequences(const std::vector<bool>& wrong, std::span<const std::int32_t> borders) {
  std::vector<std::size_t> hit;  // sequences
  std::size_t right_after = 0;   // sequences with steps from the first of these on that are not hit
  for (std::size_t m = 0; m + 1 < borders.size(); ++m) {
    if (borders[m] == borders[m + 1]) continue;
    if (std::find(wrong.begin() + borders[m], wrong.begin() + borders[m + 1], true) !=
        wrong.begin() + borders[m + 1])
      hit.push_back(m);
    else if (!hit.empty())
      ++right_after;
  }
  if (hit.size() == 1) return fmt::format("sequence {} of {}", hit.front(), borders.size() - 1);
  if (!hit.empty() && hit.front() > 0 && right_after == 0 && wrong[borders[hit.front()]])
    return fmt::format("from the start of sequence {} on: does each have a state of its own?", hit.front());
  return "";
}

std::string about_empty(const std::vector<bool>& wrong, std::span<const std::int32_t> borders) {
  for (std::size_t m = 0; m < wrong.size(); ++m)
    if (wrong[m] && borders[m] != borders[m + 1]) return "";
  return "without steps";
}

std::string about_slots(const std::vector<bool>& wrong, const HostTensor& indices) {
  for (const std::int32_t slot : values_of(indices))
    if (slot >= 0 && wrong[static_cast<std::size_t>(slot)]) return "";
  return fmt::format("which {} does not name", indices.spec.name);
}

}  // namespace

std::string common_to_rows(char letter, const std::vector<bool>& wrong,
                           const std::vector<HostTensor>& inputs) {
  const HostTensor* borders = find_tensor(inputs, "cu_seqlens");
  if (letter == kTimeLetter && borders != nullptr) return about_sequences(wrong, values_of(*borders));
  if (letter == kSequenceLetter && borders != nullptr) return about_empty(wrong, values_of(*borders));
  if (letter != kSlotLetter) return "";
  const HostTensor* indices = find_tensor(inputs, "destination");
  if (indices == nullptr) indices = find_tensor(inputs, "source");
  return indices == nullptr ? "" : about_slots(wrong, *indices);
}

}  // namespace ssmbench
