#pragma once

#include "kernels/mamba3/args.h"
#include "model/implementation.h"
#include "ops/mamba3/mamba3.h"

namespace ssmbench {

/// Checks the tensors against the problem and resolves them. Throws ContractError.
Mamba3Args bind_mamba3(const Problem& problem, const TensorSet& tensors);
Mamba3BwdArgs bind_mamba3_bwd(const Problem& problem, const TensorSet& tensors);

}  // namespace ssmbench
