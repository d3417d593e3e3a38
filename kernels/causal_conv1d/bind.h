#pragma once

#include "kernels/causal_conv1d/args.h"
#include "model/implementation.h"
#include "ops/causal_conv1d/causal_conv1d.h"

namespace ssmbench {

/// Check the tensors against the problem and resolve them. Throw ContractError.
ConvForwardArgs bind_conv_fwd(const Problem& problem, const TensorSet& tensors);
ConvBackwardArgs bind_conv_bwd(const Problem& problem, const TensorSet& tensors);
ConvUpdateArgs bind_conv_update(const Problem& problem, const TensorSet& tensors);

}  // namespace ssmbench
