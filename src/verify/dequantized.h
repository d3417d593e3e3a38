#pragma once

#include <optional>
#include <vector>

#include "model/tensor.h"

namespace ssmbench {

/// What the numbers of `tensor` stand for, in f64 and exactly: each times the scale of its row, which another
/// one of `all` holds (TensorSpec::scaled_by). Nothing where a tensor is not in units of a scale. Throws
/// std::logic_error where the scales are missing.
std::optional<HostTensor> dequantized(const HostTensor& tensor, const std::vector<HostTensor>& all);

}  // namespace ssmbench
