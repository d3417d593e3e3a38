// Scans of time in a team of ranks: an honest one, mistakes that pass for it, and ranks that end, hang or
// write where they must not.

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "model/distributed.h"

using namespace ssmbench;

namespace {

IndexRange steps_of(const Problem& whole, int rank, int ranks) {
  const std::int64_t steps = whole.size("seqlen");
  return {steps * rank / ranks, steps * (rank + 1) / ranks};
}

/// A rank's steps of one sequence, f32: (steps, dim).
struct Shard {
  const float *a, *b;
  float* out;
  std::int64_t steps, dim;

  /// `steps` of them, from `state`, which is then that after them.
  void scan(std::vector<float>& state, std::int64_t count) const {
    for (std::int64_t t = 0; t < count; ++t)
      for (std::int64_t d = 0; d < dim; ++d)
        out[t * dim + d] = state[d] = a[t * dim + d] * state[d] + b[t * dim + d];
  }
  std::vector<float> decays() const {
    std::vector<float> product(dim, 1.0F);
    for (std::int64_t i = 0; i < steps * dim; ++i) product[i % dim] *= a[i];
    return product;
  }
};

/// What is wrong with a scan.
struct Mistakes {
  bool other_neighbour = false, no_decay = false, stops_early = false, border_off_by_one = false;
};

void scan(const Shard& shard, Communicator& team, const Mistakes& mistakes) {
  const std::int64_t dim = shard.dim;
  std::vector<float> payload(dim, 0.0F);  // the state that leaves when zeros enter, then decays
  shard.scan(payload, shard.steps - (mistakes.border_off_by_one ? 1 : 0));
  if (mistakes.border_off_by_one) {
    std::vector<float> again(dim, 0.0F);
    shard.scan(again, shard.steps);
  }
  const auto decays = shard.decays();
  payload.insert(payload.end(), decays.begin(), decays.end());
  std::vector<float> all(payload.size() * static_cast<std::size_t>(team.size()));
  team.all_gather(payload.data(), all.data(), payload.size() * sizeof(float), nullptr);
  std::vector<float> state(dim, 0.0F);
  for (int before = 0; before < team.rank(); ++before) {
    const int from = mistakes.other_neighbour ? (before + 1) % team.size() : before;
    const float* of = all.data() + from * 2 * dim;
    for (std::int64_t d = 0; d < dim; ++d)
      state[d] = (mistakes.no_decay ? 1.0F : of[dim + d]) * state[d] + of[d];
  }
  if (team.rank() > 0) shard.scan(state, mistakes.stops_early ? 4 : shard.steps);
}

using Fault = std::function<void(const Shard& shard, Communicator& team)>;

void nothing(const Shard& /*shard*/, Communicator& /*team*/) {}

/// When a launch, or binding, does what it must not.
struct Faults {
  Fault before = nothing, after = nothing, at_bind = nothing;
};

DistributedImplementation team_scan(const std::string& name, const Mistakes& mistakes,
                                    const Faults& faults = {}) {
  return {.name = name,
          .op = "linear_scan",
          .device = DeviceKind::cpu,
          .summary = "test",
          .unsupported = [](const Problem& whole, int ranks) -> std::optional<std::string> {
            if (whole.size("seqlen") < 8 * ranks) return "too short";
            return {};
          },
          .box = [](const Problem& whole, int rank, int ranks) -> Box {
            return {{kTimeLetter, steps_of(whole, rank, ranks)}};
          },
          .holder = [](const std::string& /*output*/, int /*ranks*/) { return 0; },
          .workspace_bytes = [](const Problem&, int, int) { return std::size_t{64}; },
          .bind = [=](const Problem& whole, const TensorSet& parts, void* /*workspace*/,
                      Communicator& team) -> Launch {
            const Shard shard{static_cast<const float*>(parts.at("a").data),
                              static_cast<const float*>(parts.at("b").data),
                              static_cast<float*>(parts.at("out").data),
                              steps_of(whole, team.rank(), team.size()).count(), whole.size("dim")};
            faults.at_bind(shard, team);
            return [=, &team](void*) {
              faults.before(shard, team);
              scan(shard, team, mistakes);
              faults.after(shard, team);
            };
          }};
}

/// On one rank alone.
Fault on_rank(int rank, const std::function<void(const Shard&)>& fault) {
  return [=](const Shard& shard, Communicator& team) {
    if (team.rank() == rank) fault(shard);
  };
}

/// On rank 1, in the middle of a launch as the others see it.
DistributedImplementation on_rank_1(const std::string& name, const std::function<void(const Shard&)>& fault) {
  return team_scan(name, {}, {.before = on_rank(1, fault)});
}

void segfault(const Shard& /*shard*/) {
  volatile int* volatile nowhere = nullptr;
  *nowhere = 1;
}

void hang(const Shard& /*shard*/) {
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

void throw_it(const Shard& /*shard*/) {
  throw std::runtime_error("thrown");
}

/// By a thread that computes for longer than the launch takes.
void write_later(const Shard& shard) {
  std::thread([out = shard.out] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
    while (std::chrono::steady_clock::now() < end) continue;
    out[0] += 1;
  }).detach();
}

/// In every launch but the first `right` ones.
std::function<void(const Shard&)> later(int right, const std::function<void(const Shard&)>& fault) {
  return [=, launches = 0](const Shard& shard) mutable {
    if (++launches > right) fault(shard);
  };
}

const std::vector<DistributedImplementation> implementations_of_teams{
    team_scan("cpu-scan", {}), team_scan("cpu-scan-border", {.border_off_by_one = true}),
    team_scan("cpu-scan-decay", {.no_decay = true}), team_scan("cpu-scan-early", {.stops_early = true}),
    team_scan("cpu-scan-neighbour", {.other_neighbour = true}),
    on_rank_1("cpu-rank-changes-input", [](const Shard& shard) { const_cast<float*>(shard.b)[1] += 1; }),
    on_rank_1("cpu-rank-exit", [](const Shard&) { _exit(3); }), on_rank_1("cpu-rank-hang", hang),
    on_rank_1("cpu-rank-killed", [](const Shard&) { kill(getpid(), SIGKILL); }),
    on_rank_1("cpu-rank-late", later(9, segfault)),
    team_scan("cpu-rank-late-work", {}, {.after = on_rank(1, write_later)}),
    on_rank_1("cpu-rank-segfault", segfault),
    // When the others have what they need of it.
    team_scan("cpu-rank-slow", {},
              {.after = on_rank(
                   1, [](const Shard&) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); })}),
    on_rank_1("cpu-rank-throw", throw_it),
    on_rank_1("cpu-rank-writes-outside", [](const Shard& shard) { shard.out[shard.steps * shard.dim] = 1; }),
    team_scan("cpu-rank-0-segfault", {}, {.before = on_rank(0, segfault)}),
    team_scan("cpu-rank-0-throw", {}, {.before = on_rank(0, throw_it)}),
    team_scan("cpu-rank-disagrees", {},
              {.before =
                   [](const Shard&, Communicator& team) {
                     if (team.rank() == 1) team.agree(1);
                   }}),
    // By half an ulp or so, which no tolerance shows.
    team_scan(
        "cpu-rank-fickle", {},
        {.after = on_rank(
             1, later(1, [](const Shard& shard) { shard.out[0] = std::nextafter(shard.out[0], 1e9F); }))}),
    team_scan("cpu-rank-refuses", {},
              {.at_bind = on_rank(1, [](const Shard&) { throw ContractError("refused"); })})};

const std::vector<DistributedRegistration> registrations(implementations_of_teams.begin(),
                                                         implementations_of_teams.end());

}  // namespace
