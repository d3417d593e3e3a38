#pragma once

#include <optional>

#include "model/tensor.h"

namespace ssmbench {

/// The first element in memory whose bits are not the same in two tensors of one shape and layout, without
/// gaps and in host memory, as a logical index; nothing where all are equal. For c64, view them as real
/// (model/tensor.h).
std::optional<Shape> first_difference(const TensorView& a, const TensorView& b);

}  // namespace ssmbench
