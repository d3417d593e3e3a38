#include "kernels/distributed/host_registrations.h"

#include "kernels/distributed/state_passing.h"
#include "kernels/distributed/time_split.h"
#include "model/distributed.h"

namespace ssmbench {
namespace {

/// make(scan, team, workspace) gives the algorithm.
template <class Make>
auto binder(const ShardedOperation& operation, const Make& make) {
  return [=](const Problem& whole, const TensorSet& parts, void* workspace,
             Communicator& team) -> DistributedRun {
    // Shared because a Launch is copyable.
    const std::shared_ptr<LocalScan> scan =
        operation.shard(time_part(whole, team.rank(), team.size()), parts);
    const auto algorithm = std::make_shared<decltype(make(*scan, team, nullptr))>(
        make(*scan, team, static_cast<float*>(workspace)));
    const Launch launch = [scan, algorithm](void* stream) { algorithm->launch(stream); };
    if constexpr (requires { algorithm->steps_again(); })
      return {launch, [algorithm] { return algorithm->steps_again(); }};
    else
      return launch;
  };
}

/// floats(sizes of the rank's shard, ranks).
template <class Floats>
auto workspace(const ShardedOperation& operation, const Floats& floats) {
  return [=](const Problem& whole, int rank, int ranks) {
    const ShardSizes sizes = operation.sizes(time_part(whole, rank, ranks));
    return static_cast<std::size_t>(floats(sizes, ranks)) * sizeof(float);
  };
}

/// What the three have in common.
DistributedImplementation common(const ShardedOperation& operation) {
  return {.name = {},
          .op = operation.op,
          .device = DeviceKind::cpu,
          .summary = {},
          .unsupported = [operation](const Problem& whole, int ranks) -> std::optional<std::string> {
            if (auto reason = operation.unsupported(whole)) return reason;
            return too_short(whole, ranks);
          },
          .box = time_box,
          .holder = [operation](const std::string& output,
                                int ranks) { return output == operation.last_state ? ranks - 1 : 0; },
          .workspace_bytes = {},
          .bind = {}};
}

}  // namespace

HostRegistrations::HostRegistrations(const ShardedOperation& operation) {
  DistributedImplementation rerun = common(operation);
  rerun.name = "cpu-rerun";
  rerun.summary = "shards of time at once, then again from the true state until nothing changes";
  rerun.workspace_bytes = workspace(operation, [](const ShardSizes& sizes, int ranks) {
    return Rerun::floats(sizes, ranks, host_stops(sizes.steps).size());
  });
  rerun.bind = binder(operation, [](LocalScan& scan, Communicator& team, float* memory) {
    return Rerun(scan, team, host_stops(scan.sizes().steps), memory);
  });
  const DistributedRegistration first(std::move(rerun));

  DistributedImplementation two_pass = common(operation);
  two_pass.name = "cpu-twopass";
  two_pass.summary = "states of all shards of time at once, then their outputs";
  two_pass.workspace_bytes = workspace(operation, TwoPass::floats);
  two_pass.bind = binder(operation, [](LocalScan& scan, Communicator& team, float* memory) {
    return TwoPass(scan, team, memory);
  });
  const DistributedRegistration second(std::move(two_pass));

  DistributedImplementation chain = common(operation);
  chain.name = "cpu-chain";
  chain.summary = "shards of time one after the other: what passing states has to beat";
  chain.workspace_bytes =
      workspace(operation, [](const ShardSizes& sizes, int /*ranks*/) { return Chain::floats(sizes); });
  chain.bind = binder(operation, [](LocalScan& scan, Communicator& team, float* memory) {
    return Chain(scan, team, memory);
  });
  const DistributedRegistration third(std::move(chain));
}

}  // namespace ssmbench
