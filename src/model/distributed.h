#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/box.h"
#include "model/communicator.h"
#include "model/implementation.h"

namespace ssmbench {

/// What a rank has bound.
struct DistributedRun {
  DistributedRun(Launch bound,
                 std::function<std::int64_t()> again = nullptr)  // NOLINT: mostly a launch alone
      : launch(std::move(bound)), steps_again(std::move(again)) {}

  Launch launch;
  /// Steps of its shard that the last launch, once it has ended, computed a second time, where that depends on
  /// the data; else null.
  std::function<std::int64_t()> steps_again;
};

/// A kernel that the ranks of a team compute together, each on its part of one problem. How many ranks there
/// are is no part of the problem: inputs and the reference are those of the whole.
struct DistributedImplementation {
  std::string name;  ///< "cpu-rerun", "nccl-rerun": on CPUs, on GPUs
  std::string op;
  DeviceKind device = DeviceKind::cpu;
  std::string summary;
  /// Implementation::arithmetic.
  std::function<Arithmetic(DType io)> arithmetic = [](DType) { return Arithmetic(); };
  /// Why so many ranks cannot do the problem; nothing when they can.
  std::function<std::optional<std::string>(const Problem& whole, int ranks)> unsupported;
  /// The rank's part of every tensor. Outputs that it cuts are put together from the parts.
  std::function<Box(const Problem& whole, int rank, int ranks)> box;
  /// The rank whose copy counts of an output that the box does not cut.
  std::function<int(const std::string& output, int ranks)> holder;
  std::function<std::size_t(const Problem& whole, int rank, int ranks)> workspace_bytes;
  /// Resolves the rank's parts of the tensors (in its device's memory) once; the result is launched many
  /// times, by all ranks together. The communicator outlives it. Throws ContractError when a tensor is not
  /// the part that the box says.
  std::function<DistributedRun(const Problem& whole, const TensorSet& parts, void* workspace,
                               Communicator& team)>
      bind;
};

/// Everything that is built in, ordered by op and name.
const std::vector<DistributedImplementation>& distributed_implementations();

/// One of them; null where there is none of that name.
const DistributedImplementation* distributed_implementation(const std::string& op, const std::string& name);

/// All of them as implementations on a device of so many ranks (2 or more), for plans. Nothing can be bound
/// but by that device. workspace_bytes is that of the rank that needs most.
const std::vector<Implementation>& team_implementations(int ranks);

/// What the parts of tensors and the workspace of a rank take.
std::size_t bytes_of_rank(const DistributedImplementation& implementation, const Problem& whole, int rank,
                          int ranks);
/// The same of all ranks together.
std::size_t bytes_of_ranks(const DistributedImplementation& implementation, const Problem& whole, int ranks);

/// Registers it, as Registration does.
struct DistributedRegistration {
  explicit DistributedRegistration(DistributedImplementation implementation);
};

}  // namespace ssmbench
