#pragma once

#include <cstdint>

#include "model/implementation.h"
#include "ops/linear_scan/linear_scan.h"

namespace ssmbench {

/// linear_scan as every implementation takes it: (batch, seqlen, dim) in the io dtype, dim innermost.
struct LinearScanArgs {
  std::int64_t batch, seqlen, dim;
  const void* a;
  const void* b;
  void* out;
};

/// Checks the tensors against the problem and resolves them. Throws ContractError.
LinearScanArgs bind_linear_scan(const Problem& problem, const TensorSet& tensors);

}  // namespace ssmbench
