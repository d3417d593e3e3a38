#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/distributed/rank_kind.h"
#include "kernels/distributed/state_gradients.h"
#include "model/implementation.h"
#include "model/problem.h"

namespace ssmbench {

/// The gradients of a shard in two halves, of which the second goes on where the first has come to.
struct GradientHalves {
  std::function<void(const ThroughShard& through, void* stream)> pass;
  Launch compute;  ///< from the problem's initial state and the gradient of its last one
};

/// What gradients over ranks need to know of an operation, on one kind of device. Names are those of its
/// tensors.
struct ShardedGradients {
  const char* op;
  const char* state;        ///< the input of the state before the first step
  const char* dlast_state;  ///< the input of the gradient of the last one
  const char* dlast_axis;   ///< the flag that says whether there is one
  const char* numbers;      ///< an input that numbers sequences, rebased in shards; null where there is none
  std::vector<const char*> sums_over_time;  ///< outputs that may be sums over time
  std::optional<std::string> (*unsupported)(const Problem& whole);
  ShardSizes (*sizes)(const Problem& part);
  /// Bytes of a workspace for scan and go_back, which do not overlap; null: none.
  std::size_t (*shard_bytes)(const Problem& part) = nullptr;
  /// The forward scan of a part of the gradients' problem, for its states and for what becomes of them.
  std::unique_ptr<LocalScan> (*scan)(const Problem& part, const TensorSet& tensors, void* workspace);
  /// Takes a gradient of states through the steps of a part, last to first. Null: all problems have halves.
  std::function<void(const float* leaving, float* entering, void* stream)> (*go_back)(
      const Problem& part, const TensorSet& tensors, void* workspace) = nullptr;
  /// Whether a problem with an initial state and dlast_state has halves. Else the scan runs for its states,
  /// go_back for their gradients, and then the gradients of one device. Null: none has.
  bool (*has_halves)(const Problem& problem) = nullptr;
  GradientHalves (*halves)(const Problem& problem, const TensorSet& tensors, void* workspace) = nullptr;
  std::size_t (*halves_bytes)(const Problem& problem) = nullptr;
  /// Numbers of `numbers` (B, L) less the first of each batch, which a problem by itself begins with; null
  /// where there are none.
  void (*rebase)(const TensorView& numbers, std::int32_t* to, void* stream) = nullptr;
};

/// Registers cpu-twopass or nccl-twopass of an operation (state_gradients.h), whose gradients are those of one
/// device. `ranks` has to live as long as the program.
struct GradientRegistration {
  GradientRegistration(const RankKind& ranks, const ShardedGradients& operation);
};

}  // namespace ssmbench
