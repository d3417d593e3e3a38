#pragma once

#include <cstddef>
#include <vector>

namespace ssmbench {

/// Two slices of one shape that do not overlap, in host or device memory: `rows` of `width` bytes, `pitch`
/// bytes apart. Bytes of a row are a multiple of 2, as every dtype is, and so are addresses and pitch.
struct SlicePair {
  void* first = nullptr;
  void* second = nullptr;
  std::size_t width = 0, pitch = 0, rows = 0;
};

/// The slices of each pair, in host memory, change places.
void exchange_slices(const std::vector<SlicePair>& pairs);

}  // namespace ssmbench
