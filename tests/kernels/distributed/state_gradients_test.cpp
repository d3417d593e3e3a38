// Gradients of scans over several ranks, each a process on the CPU, against the reference of the whole
// problem; and mistakes that must be found.

#include "kernels/distributed/state_gradients.h"

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "catch.h"
#include "support/ranks.h"
#include "support/run_plan.h"
#include "support/sharded_problems.h"
#include "support/team_run.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

const std::vector<ProblemAt> kGradientProblems{
    [](std::int64_t seqlen, std::size_t turn) {
      return scan_at(seqlen, turn, selective_scan_bwd()).with({{"dlast_state", turn % 3 != 0}});
    },
    [](std::int64_t seqlen, std::size_t turn) { return ssd_at(seqlen, turn, ssd_chunk_scan_bwd()); }};

const DistributedImplementation& gradients_of(const Problem& problem) {
  return find_distributed(problem.op().name, "cpu-twopass");
}

/// Leaves out the summary, so that decays over a shard are 1: the second of three shards, whose summary is
/// read by the third for states and by the first for gradients.
class NothingDecays : public PassingTeam {
 public:
  using PassingTeam::PassingTeam;
  void all_gather(const void* from, void* to, std::size_t bytes, void* stream) override {
    PassingTeam::all_gather(from, to, bytes, stream);
    if (size() != 3) return;
    auto* payload = static_cast<std::byte*>(to) + bytes;
    const std::size_t summary = 2 * kRows * sizeof(float);
    std::memset(payload + (bytes - summary) / 2, 0, summary);  // between two states of one size
  }
  static constexpr std::size_t kRows = 4;
};

}  // namespace

TEST_CASE("gradients over ranks agree with the reference at every length") {
  std::size_t turn = 0;
  for (const ProblemAt& problem_at : kGradientProblems)
    for (const int ranks : {2, 3, 4})
      for (const std::int64_t seqlen : {64 * ranks - 1, 64 * ranks, 64 * ranks + 1, 1000}) {
        ++turn;
        const WholeCase whole(make_case(problem_at(seqlen, turn), turn % 3 == 0 ? "slow_decay" : "mamba"));
        INFO(ranks << " ranks");
        CHECK(whole.faults_of(gradients_of(whole.the_case().problem), ranks) == "");
      }
}

TEST_CASE("gradients over ranks agree with the reference for every option") {
  for (const ProblemAt& problem_at : kGradientProblems)
    for (std::size_t turn = 0; turn < 21; ++turn) {
      const WholeCase whole(make_case(problem_at(150 + static_cast<std::int64_t>(turn), turn),
                                      turn % 2 == 0 ? "slow_decay" : "trained"));
      CHECK(whole.faults_of(gradients_of(whole.the_case().problem), turn % 5 == 0 ? 1 : 3) == "");
    }
}

TEST_CASE("mistakes in gradients over ranks are found by verification") {
  const Problem scan = scan_problem({{"seqlen", size(400)},
                                     {"dim", size(static_cast<std::int64_t>(NothingDecays::kRows))},
                                     {"dstate", size(3)},
                                     {"delta_softplus", true},
                                     {"dlast_state", true}},
                                    selective_scan_bwd());
  const Problem ssd = ssd_problem({{"seqlen", size(400)},
                                   {"nheads", size(static_cast<std::int64_t>(NothingDecays::kRows))},
                                   {"headdim", size(4)},
                                   {"dstate", size(3)},
                                   {"dt_softplus", true},
                                   {"final_states", true}},
                                  ssd_chunk_scan_bwd());
  for (const Problem& problem : {scan, ssd}) {
    INFO(problem.op().name);
    const auto& honest = gradients_of(problem);
    const WholeCase whole(make_case(problem, "slow_decay"));
    CHECK(whole.faults_of(honest, 3) == "");
    CHECK(whole.faults_of(on_team<PassingTeam>(honest), 3) == "");
    CHECK(whole.faults_of(on_team<NothingAdded>(honest), 3) != "");
    CHECK(whole.faults_of(on_team<ShiftedGather>(honest), 3) != "");
    CHECK(whole.faults_of(on_team<NothingDecays>(honest), 3) != "");
    const TeamChanges late{.edit = nullptr, .input_box = [](Box box, int rank) {
                             if (rank > 0) box.at('l') = {box.at('l').begin - 1, box.at('l').end - 1};
                             return box;
                           }};
    CHECK(whole.faults(run_team(whole.the_case(), honest, 3, late).outputs) != "");
  }
}
