#include "verify/same_bits.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

namespace ssmbench {
namespace {

/// The logical index of the element at an offset.
Shape index_at(std::int64_t offset, const TensorView& view) {
  std::vector<std::size_t> axes(view.shape.size());
  std::iota(axes.begin(), axes.end(), std::size_t{0});
  std::ranges::sort(axes, std::greater<>(), [&](std::size_t axis) { return view.strides[axis]; });
  Shape index(view.shape.size(), 0);
  for (const auto axis : axes) {
    if (view.shape[axis] == 1) continue;  // its stride is that of another axis
    index[axis] = offset / view.strides[axis];
    offset %= view.strides[axis];
  }
  return index;
}

}  // namespace

std::optional<Shape> first_difference(const TensorView& a, const TensorView& b) {
  const std::size_t size = size_of(a.dtype);
  const std::size_t bytes = static_cast<std::size_t>(element_count(a.shape)) * size;
  if (std::memcmp(a.data, b.data, bytes) == 0) return {};
  const auto* const a_bytes = static_cast<const std::byte*>(a.data);
  const auto* const b_bytes = static_cast<const std::byte*>(b.data);
  const auto byte = std::mismatch(a_bytes, a_bytes + bytes, b_bytes).first - a_bytes;
  return index_at(byte / static_cast<std::ptrdiff_t>(size), a);
}

}  // namespace ssmbench
