#include "kernels/distributed/state_passing.h"

#include "kernels/distributed/workspace_parts.h"

namespace ssmbench {
namespace {

std::size_t payload_bytes(const LocalScan& scan) {
  return static_cast<std::size_t>(scan.sizes().payload_floats()) * sizeof(float);
}

constexpr std::int64_t kProgressFloats = sizeof(RerunProgress) / sizeof(float);

bool is_last(const Communicator& team) {
  return team.rank() + 1 == team.size();
}

/// Where a rank's own payload is among all.
float* own_of(const LocalScan& scan, const Communicator& team, float* payloads) {
  return payloads + team.rank() * scan.sizes().payload_floats();
}

/// What shards leave goes to those behind. Between two ranks that is one message, which takes 25 us where an
/// all-gather takes 31 (2.6 MB by NCCL on two H100).
void pass_on(const LocalScan& scan, Communicator& team, float* payloads, void* stream) {
  const std::size_t bytes = payload_bytes(scan);
  if (team.size() != 2)
    team.all_gather(own_of(scan, team, payloads), payloads, bytes, stream);
  else if (team.rank() == 0)
    team.send(payloads, bytes, 1, stream);
  else
    team.receive(payloads, bytes, 0, stream);
}

}  // namespace

Rerun::Rerun(LocalScan& scan, Communicator& team, std::vector<std::int64_t> stops, float* workspace)
    : scan_(scan), team_(team), stops_(std::move(stops)) {
  WorkspaceParts parts(workspace);
  payloads_ = parts.take(scan.sizes().payload_floats() * team.size());
  own_ = own_of(scan, team, payloads_);
  kept_ = parts.take(scan.sizes().state_floats * (std::ssize(stops_) - 1));
  room_ = parts.take(scan.sizes().state_floats);
  again_ = parts.take(2 * scan.sizes().state_floats);
  progress_ = reinterpret_cast<RerunProgress*>(parts.take(kProgressFloats));
}

std::int64_t Rerun::floats(const ShardSizes& sizes, int ranks, std::size_t stops) {
  WorkspaceParts parts(nullptr);
  parts.take(sizes.payload_floats() * ranks);
  parts.take(sizes.state_floats * (static_cast<std::int64_t>(stops) - 1));
  parts.take(sizes.state_floats);
  parts.take(2 * sizes.state_floats);
  parts.take(kProgressFloats);
  return parts.floats();
}

float* Rerun::kept(std::size_t index) const {
  if (index + 1 == stops_.size()) return own_;  // what leaves the shard
  return kept_ + static_cast<std::int64_t>(index) * scan_.sizes().state_floats;
}

void Rerun::launch(void* stream) {
  scan_.begin_summary(own_ + scan_.sizes().state_floats, decays_matter(team_), stream);
  first_pass(stream);
  scan_.end_summary(stream);
  pass_on(scan_, team_, payloads_, stream);
  if (is_last(team_) && scan_.last_state() != nullptr) scan_.copy_state(own_, scan_.last_state(), stream);
  if (team_.rank() > 0) second_pass(stream);
}

void Rerun::first_pass(void* stream) {
  const float* state = team_.rank() == 0 ? scan_.initial_state() : nullptr;
  for (std::size_t i = 0; i < stops_.size(); ++i) {
    scan_.run(range(i), state, kept(i), true, stream);
    state = kept(i);
  }
}

void Rerun::second_pass(void* stream) {
  scan_.reset(progress_, stream);
  entering_ = scan_.entered({payloads_, scan_.sizes().payload_floats()}, team_.rank(), room_, stream);
  const float* state = entering_;
  for (std::size_t i = 0; i < stops_.size(); ++i) {
    if (i > 0 && scan_.is_done(progress_, stream)) return;
    // The last state has been that of the first pass so far, and stays so where this run is not needed.
    const bool is_result = i + 1 == stops_.size() && is_last(team_) && scan_.last_state() != nullptr;
    float* next = is_result ? scan_.last_state()
                            : again_ + static_cast<std::int64_t>(i % 2) * scan_.sizes().state_floats;
    scan_.run(range(i), state, next, true, stream);
    scan_.compare(next, kept(i), progress_, stream);
    state = next;
  }
}

std::int64_t Rerun::steps_again() const {
  if (team_.rank() == 0) return 0;
  const auto ranges = static_cast<std::size_t>(scan_.settled(progress_).ranges);
  return ranges == 0 ? 0 : stops_[ranges - 1];
}

TwoPass::TwoPass(LocalScan& scan, Communicator& team, float* workspace) : scan_(scan), team_(team) {
  WorkspaceParts parts(workspace);
  payloads_ = parts.take(scan.sizes().payload_floats() * team.size());
  own_ = own_of(scan, team, payloads_);
  room_ = parts.take(scan.sizes().state_floats);
}

std::int64_t TwoPass::floats(const ShardSizes& sizes, int ranks) {
  WorkspaceParts parts(nullptr);
  parts.take(sizes.payload_floats() * ranks);
  parts.take(sizes.state_floats);
  return parts.floats();
}

void TwoPass::launch(void* stream) {
  const bool is_first = team_.rank() == 0;
  scan_.begin_summary(own_ + scan_.sizes().state_floats, decays_matter(team_), stream);
  // Nobody asks for what leaves the last shard; its summary says whether a sequence begins there.
  scan_.run_first(is_first ? scan_.initial_state() : nullptr, is_last(team_) ? nullptr : own_, stream);
  scan_.end_summary(stream);
  pass_on(scan_, team_, payloads_, stream);
  const float* entering =
      is_first ? scan_.initial_state()
               : scan_.entered({payloads_, scan_.sizes().payload_floats()}, team_.rank(), room_, stream);
  float* leaving = is_last(team_) && scan_.last_state() != nullptr ? scan_.last_state() : own_;
  scan_.run_second(entering, leaving, stream);
}

Chain::Chain(LocalScan& scan, Communicator& team, float* workspace) : scan_(scan), team_(team) {
  WorkspaceParts parts(workspace);
  payloads_ = parts.take(2 * scan.sizes().payload_floats());
  room_ = parts.take(scan.sizes().state_floats);
}

std::int64_t Chain::floats(const ShardSizes& sizes) {
  WorkspaceParts parts(nullptr);
  parts.take(2 * sizes.payload_floats());
  parts.take(sizes.state_floats);
  return parts.floats();
}

void Chain::launch(void* stream) {
  const bool is_first = team_.rank() == 0;
  float* own = payloads_ + scan_.sizes().payload_floats();
  scan_.begin_summary(own + scan_.sizes().state_floats, false, stream);
  scan_.end_summary(stream);
  const float* entering = scan_.initial_state();
  if (!is_first) {  // as the second of two shards
    team_.receive(payloads_, payload_bytes(scan_), team_.rank() - 1, stream);
    entering = scan_.entered({payloads_, scan_.sizes().payload_floats()}, 1, room_, stream);
  }
  float* leaving = is_last(team_) && scan_.last_state() != nullptr ? scan_.last_state() : own;
  scan_.run({0, scan_.sizes().steps}, entering, leaving, true, stream);
  if (!is_last(team_)) team_.send(own, payload_bytes(scan_), team_.rank() + 1, stream);
}

std::vector<std::int64_t> cuda_stops(std::int64_t steps) {
  std::vector<std::int64_t> stops;
  for (const std::int64_t stop : {20480, 32768})
    if (stop < steps) stops.push_back(stop);
  stops.push_back(steps);
  return stops;
}

std::vector<std::int64_t> host_stops(std::int64_t steps) {
  constexpr std::int64_t kDoubled = 16384;
  constexpr std::int64_t kStride = 4096;
  constexpr std::int64_t kLast = 32768;
  std::vector<std::int64_t> stops;
  for (std::int64_t stop = 64; stop < steps && stop <= kLast; stop += stop < kDoubled ? stop : kStride)
    stops.push_back(stop);
  stops.push_back(steps);
  return stops;
}

}  // namespace ssmbench
