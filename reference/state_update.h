#pragma once

#include "reference/reference.h"

namespace ssmbench {

/// selective_state_update in fp64, threads over heads: out, and state after the step.
ReferenceOutputs state_update_reference(const Problem& problem, const TensorSet& inputs,
                                        const std::atomic<bool>& stop);

}  // namespace ssmbench
