#pragma once

#include <cstdint>
#include <map>

#include "model/tensor.h"

namespace ssmbench {

/// Indices [begin, end) of an axis.
struct IndexRange {
  std::int64_t begin, end;

  std::int64_t count() const { return end - begin; }
};

/// A part of a problem, such as the one that a rank of a team has: by the letters of axes (TensorSpec::axes), the
/// indices that belong to it. Tensors with such an axis are cut there; axes without an entry are whole.
using Box = std::map<char, IndexRange>;

/// The part of a tensor that lies in the box, in the same storage order without gaps.
TensorSpec part_of(const TensorSpec& whole, const Box& box);
/// The logical index of its first element in the whole tensor.
Shape begin_of(const TensorSpec& whole, const Box& box);

}  // namespace ssmbench
