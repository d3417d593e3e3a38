#pragma once

#include <memory>
#include <optional>
#include <string>

#include "kernels/distributed/local_scan.h"
#include "model/problem.h"

namespace ssmbench {

/// What passing states on CPU ranks needs to know of an operation.
struct ShardedOperation {
  const char* op;
  const char* last_state;  ///< its output of the state after the last step, where it has one
  std::optional<std::string> (*unsupported)(const Problem& whole);
  ShardSizes (*sizes)(const Problem& part);
  /// The shard that `part` is by itself, of its own tensors. Throws ContractError.
  std::unique_ptr<LocalScan> (*shard)(const Problem& part, const TensorSet& tensors);
};

/// Registers cpu-rerun, cpu-twopass and cpu-chain of an operation (state_passing.h). Their scans are those of
/// cpu-simd and cpu-scalar; the names say how ranks work together.
struct HostRegistrations {
  explicit HostRegistrations(const ShardedOperation& operation);
};

}  // namespace ssmbench
