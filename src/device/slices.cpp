#include "device/slices.h"

#include <algorithm>

namespace ssmbench {

void exchange_slices(const std::vector<SlicePair>& pairs) {
  for (const auto& pair : pairs) {
    auto* first = static_cast<std::byte*>(pair.first);
    auto* second = static_cast<std::byte*>(pair.second);
    for (std::size_t row = 0; row < pair.rows; ++row, first += pair.pitch, second += pair.pitch)
      std::swap_ranges(first, first + pair.width, second);
  }
}

}  // namespace ssmbench
