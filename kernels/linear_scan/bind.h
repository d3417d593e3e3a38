#pragma once

#include "kernels/linear_scan/args.h"
#include "model/implementation.h"
#include "ops/linear_scan/linear_scan.h"

namespace ssmbench {

/// Checks the tensors against the problem and resolves them. Throws ContractError.
LinearScanArgs bind_linear_scan(const Problem& problem, const TensorSet& tensors);

}  // namespace ssmbench
