#pragma once

#include "kernels/selective_state_replay/args.h"
#include "model/implementation.h"
#include "ops/selective_state_replay/selective_state_replay.h"

namespace ssmbench {

/// Checks the tensors against the problem and resolves them. Throws ContractError.
StateReplayArgs bind_state_replay(const Problem& problem, const TensorSet& tensors);

}  // namespace ssmbench
