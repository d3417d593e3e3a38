#pragma once

#include "kernels/ssd_chunk_scan/args.h"
#include "model/implementation.h"
#include "ops/ssd_chunk_scan/ssd_chunk_scan.h"

namespace ssmbench {

/// Check the tensors against the problem and resolve them. Throw ContractError.
SsdArgs bind_ssd(const Problem& problem, const TensorSet& tensors);
SsdBwdArgs bind_ssd_bwd(const Problem& problem, const TensorSet& tensors);

}  // namespace ssmbench
