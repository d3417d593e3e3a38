#include "model/box.h"

#include <stdexcept>

namespace ssmbench {

TensorSpec part_of(const TensorSpec& whole, const Box& box) {
  TensorSpec part = whole;
  for (std::size_t axis = 0; axis < whole.axes.size(); ++axis) {
    const auto cut = box.find(whole.axes[axis]);
    if (cut == box.end()) continue;
    if (cut->second.begin < 0 || cut->second.count() < 1 || cut->second.end > whole.shape[axis])
      throw std::logic_error("a box that does not lie in tensor " + whole.name);
    part.shape[axis] = cut->second.count();
  }
  return part;
}

Shape begin_of(const TensorSpec& whole, const Box& box) {
  Shape begin(whole.shape.size(), 0);
  for (std::size_t axis = 0; axis < whole.axes.size(); ++axis)
    if (const auto cut = box.find(whole.axes[axis]); cut != box.end()) begin[axis] = cut->second.begin;
  return begin;
}

}  // namespace ssmbench
