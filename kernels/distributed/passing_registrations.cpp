#include "kernels/distributed/passing_registrations.h"

#include "kernels/distributed/state_passing.h"
#include "kernels/distributed/time_split.h"
#include "model/distributed.h"

namespace ssmbench {
namespace {

/// Of an algorithm with make(scan, team, workspace), and floats(sizes of the rank's shard, ranks) of its own,
/// after which comes the shard's workspace.
template <class Make, class Floats>
DistributedImplementation distributed(const RankKind& ranks, const ShardedOperation& operation,
                                      const std::string& name, const char* summary, const Make& make,
                                      const Floats& floats) {
  const auto own_bytes = [=](const Problem& part, int count) {
    return static_cast<std::size_t>(floats(operation.sizes(part), count)) * sizeof(float);
  };
  return {
      .name = std::string(ranks.prefix) + "-" + name,
      .op = operation.op,
      .device = ranks.device,
      .summary = summary,
      .arithmetic = [&ranks, op = std::string(operation.op)](DType io) { return ranks.arithmetic(op, io); },
      .unsupported = [operation](const Problem& whole, int count) -> std::optional<std::string> {
        if (auto reason = operation.unsupported(whole)) return reason;
        return too_short(whole, count);
      },
      .box = time_box,
      .holder = [operation](const std::string& output,
                            int count) { return output == operation.last_state ? count - 1 : 0; },
      .workspace_bytes =
          [=](const Problem& whole, int rank, int count) {
            const Problem part = time_part(whole, rank, count);
            const std::size_t of_shard = operation.shard_bytes == nullptr ? 0 : operation.shard_bytes(part);
            return own_bytes(part, count) + of_shard;
          },
      .bind = [=](const Problem& whole, const TensorSet& parts, void* workspace,
                  Communicator& team) -> DistributedRun {
        const Problem part = time_part(whole, team.rank(), team.size());
        void* const of_shard = workspace == nullptr
                                   ? nullptr
                                   : static_cast<std::byte*>(workspace) + own_bytes(part, team.size());
        // Shared because a Launch is copyable.
        const std::shared_ptr<LocalScan> scan = operation.shard(part, parts, of_shard);
        const auto algorithm = std::make_shared<decltype(make(*scan, team, nullptr))>(
            make(*scan, team, static_cast<float*>(workspace)));
        const Launch launch = [scan, algorithm](void* stream) { algorithm->launch(stream); };
        if constexpr (requires { algorithm->steps_again(); })
          return {launch, [algorithm] { return algorithm->steps_again(); }};
        else
          return launch;
      }};
}

}  // namespace

PassingRegistrations::PassingRegistrations(const RankKind& ranks, const ShardedOperation& operation) {
  const auto stops = operation.stops;
  const DistributedRegistration rerun(distributed(
      ranks, operation, "rerun",
      "shards of time at once, then again from the true state until nothing changes",
      [stops](LocalScan& scan, Communicator& team, float* memory) {
        return Rerun(scan, team, stops(scan.sizes().steps), memory);
      },
      [stops](const ShardSizes& sizes, int count) {
        return Rerun::floats(sizes, count, stops(sizes.steps).size());
      }));
  const DistributedRegistration two_pass(distributed(
      ranks, operation, "twopass", "states of all shards of time at once, then their outputs",
      [](LocalScan& scan, Communicator& team, float* memory) { return TwoPass(scan, team, memory); },
      TwoPass::floats));
  const DistributedRegistration chain(distributed(
      ranks, operation, "chain", "shards of time one after the other: what passing states has to beat",
      [](LocalScan& scan, Communicator& team, float* memory) { return Chain(scan, team, memory); },
      [](const ShardSizes& sizes, int /*count*/) { return Chain::floats(sizes); }));
}

}  // namespace ssmbench
