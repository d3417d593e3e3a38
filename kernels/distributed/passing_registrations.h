#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/distributed/local_scan.h"
#include "kernels/distributed/rank_kind.h"
#include "model/problem.h"

namespace ssmbench {

/// What passing states needs to know of an operation, on one kind of device.
struct ShardedOperation {
  const char* op;
  const char* last_state;  ///< its output of the state after the last step, where it has one
  std::optional<std::string> (*unsupported)(const Problem& whole);
  ShardSizes (*sizes)(const Problem& part);
  /// Bytes of a workspace for the shard's own use; null: none.
  std::size_t (*shard_bytes)(const Problem& part) = nullptr;
  /// The shard that `part` is by itself, of its own tensors. Throws ContractError.
  std::unique_ptr<LocalScan> (*shard)(const Problem& part, const TensorSet& tensors, void* workspace);
  /// Where states are compared (Rerun).
  std::vector<std::int64_t> (*stops)(std::int64_t steps);
};

/// Registers cpu-rerun, cpu-twopass and cpu-chain of an operation (state_passing.h), or nccl-…. `ranks` has to
/// live as long as the program.
struct PassingRegistrations {
  PassingRegistrations(const RankKind& ranks, const ShardedOperation& operation);
};

}  // namespace ssmbench
