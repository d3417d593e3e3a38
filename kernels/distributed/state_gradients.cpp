#include "kernels/distributed/state_gradients.h"

#include "kernels/distributed/workspace_parts.h"

namespace ssmbench {
namespace {

/// The state that leaves, the summary, and the gradient of the state that enters.
std::int64_t floats_of_payload(const ShardSizes& sizes) {
  return sizes.payload_floats() + sizes.state_floats;
}

}  // namespace

StateGradients::StateGradients(LocalGradients& gradients, Communicator& team, const GradientBuffers& buffers,
                               float* workspace)
    : gradients_(gradients), team_(team), buffers_(buffers) {
  WorkspaceParts parts(workspace);
  own_ = parts.take(payload_floats());
  payloads_ = parts.take(payload_floats() * team.size());
}

std::int64_t StateGradients::floats(const ShardSizes& sizes, int ranks) {
  WorkspaceParts parts(nullptr);
  parts.take(floats_of_payload(sizes));
  parts.take(floats_of_payload(sizes) * ranks);
  return parts.floats();
}

std::int64_t StateGradients::payload_floats() const {
  return floats_of_payload(gradients_.scan().sizes());
}

void StateGradients::launch(void* stream) {
  LocalScan& scan = gradients_.scan();
  const ShardSizes& sizes = scan.sizes();
  const int rank = team_.rank();
  const int ranks = team_.size();
  const bool is_first = rank == 0;
  const bool is_last = rank + 1 == ranks;
  // Nobody asks for the state that leaves the last shard, nor for the gradient of what enters the first.
  scan.begin_summary(own_ + sizes.state_floats, decays_matter(team_), stream);
  gradients_.pass({.state = is_first ? scan.initial_state() : nullptr,
                   .leaving = is_last ? nullptr : own_,
                   .gradient = is_last ? gradients_.dlast_state() : nullptr,
                   .entering = is_first ? nullptr : own_ + sizes.payload_floats()},
                  stream);
  scan.end_summary(stream);
  team_.all_gather(own_, payloads_, static_cast<std::size_t>(payload_floats()) * sizeof(float), stream);

  const Payloads payloads{payloads_, payload_floats()};
  if (is_first)
    scan.copy_state(scan.initial_state(), buffers_.state, stream);
  else
    scan.enter(payloads, rank, buffers_.state, stream);
  if (is_last)
    scan.copy_state(gradients_.dlast_state(), buffers_.carry, stream);
  else
    scan.enter_from_after(payloads, sizes.payload_floats(), rank, ranks, buffers_.carry, stream);
  gradients_.compute(stream);
  for (const auto sum : gradients_.sums()) team_.all_reduce(sum.data(), sum.size(), stream);
}

}  // namespace ssmbench
