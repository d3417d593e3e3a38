#pragma once

#include <vector>

#include "model/problem.h"
#include "model/tensor.h"

namespace ssmbench {

/// The tensors of mamba3_siso_fwd and mamba3_mimo_fwd, of mamba3_siso_bwd and mamba3_mimo_bwd, and of
/// mamba3_step.
std::vector<TensorSpec> mamba3_fwd_tensors(const Problem& problem);
std::vector<TensorSpec> mamba3_bwd_tensors(const Problem& problem);
std::vector<TensorSpec> mamba3_step_tensors(const Problem& problem);

}  // namespace ssmbench
