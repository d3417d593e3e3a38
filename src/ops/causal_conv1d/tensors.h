#pragma once

#include <vector>

#include "model/problem.h"

namespace ssmbench {

/// The tensors of a problem of each operation; shapes are in causal_conv1d.h.
std::vector<TensorSpec> conv_fwd_tensors(const Problem& problem);
std::vector<TensorSpec> conv_bwd_tensors(const Problem& problem);
std::vector<TensorSpec> conv_update_tensors(const Problem& problem);

}  // namespace ssmbench
