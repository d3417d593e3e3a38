#pragma once

#include <optional>
#include <string>

#include "kernels/selective_scan/args.h"
#include "model/implementation.h"
#include "ops/selective_scan/selective_scan.h"

namespace ssmbench {

/// Checks the tensors against the problem and resolves them. Throws ContractError.
ScanArgs bind_scan(const Problem& problem, const TensorSet& tensors);

/// Checks the tensors against the problem and resolves them. Throws ContractError.
ScanGradientArgs bind_scan_gradients(const Problem& problem, const TensorSet& tensors);

/// The reason of implementations whose A is one number per state; nothing when the problem's is.
std::optional<std::string> not_diagonal(const Problem& problem);

/// The reason of implementations that have method zoh and real A only, and no x; nothing when the problem is
/// one of those.
std::optional<std::string> not_real_zoh(const Problem& problem);

/// The reason of implementations without x; nothing when the problem has none.
std::optional<std::string> has_no_x(const Problem& problem);

/// The reason of those that have x for the common case alone, by vectors; nothing when the problem is one.
std::optional<std::string> not_in_vectors_of_x(const Problem& problem);

}  // namespace ssmbench
