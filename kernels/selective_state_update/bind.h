#pragma once

#include "kernels/selective_state_update/args.h"
#include "model/implementation.h"
#include "ops/selective_state_update/selective_state_update.h"

namespace ssmbench {

/// Checks the tensors against the problem and resolves them. Throws ContractError.
StateUpdateArgs bind_state_update(const Problem& problem, const TensorSet& tensors);

/// Of tensors that have been checked.
StateStorage bind_state_storage(const Problem& problem, const TensorSet& tensors);

}  // namespace ssmbench
