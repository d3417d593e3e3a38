// Splits along channels and batches, and the exchange of time for channels, over CPU ranks: against the
// reference of the whole problem; what they do not support; and sums that are left out.

#include "kernels/distributed/splits.h"

#include <functional>
#include <map>
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

const std::vector<ProblemAt> kSplitProblems{
    [](std::int64_t seqlen, std::size_t turn) { return scan_at(seqlen, turn, selective_scan_fwd()); },
    [](std::int64_t seqlen, std::size_t turn) { return scan_at(seqlen, turn, selective_scan_bwd()); },
    [](std::int64_t seqlen, std::size_t turn) { return ssd_at(seqlen, turn, ssd_chunk_scan_fwd()); },
    [](std::int64_t seqlen, std::size_t turn) { return ssd_at(seqlen, turn, ssd_chunk_scan_bwd()); }};

const std::vector<std::string> kSplits{"cpu-channels", "cpu-batch", "cpu-alltoall"};

std::string reason_of(const std::string& name, const Problem& problem, int ranks) {
  return find_distributed(problem.op().name, name).unsupported(problem, ranks).value_or("");
}

}  // namespace

TEST_CASE("splits agree with the reference for every option") {
  std::map<std::string, int> done;
  for (const ProblemAt& problem_at : kSplitProblems)
    for (std::size_t turn = 0; turn < 12; ++turn) {
      const int ranks = turn % 4 == 1 ? 3 : 2;
      const Problem problem = problem_at(130 + static_cast<std::int64_t>(turn), turn)
                                  .with({{"batch", size(turn % 2 == 0 ? 3 : 2)}});
      const WholeCase whole(make_case(problem, turn % 2 == 0 ? "slow_decay" : "mamba"));
      for (const auto& name : kSplits) {
        if (!reason_of(name, problem, ranks).empty()) continue;
        INFO(name << ", " << ranks << " ranks");
        CHECK(whole.faults_of(find_distributed(problem.op().name, name), ranks) == "");
        ++done[problem.op().name + " " + name];
      }
    }
  for (const ProblemAt& problem_at : kSplitProblems)
    for (const auto& name : kSplits) CHECK(done[problem_at(64, 0).op().name + " " + name] >= 4);
}

TEST_CASE("ranks may share a group, forward") {
  for (const std::size_t turn : {0, 1})  // two groups, and one, of 4 heads
    for (const auto& name : {"cpu-channels", "cpu-alltoall"}) {
      const WholeCase whole(make_case(ssd_at(256, turn, ssd_chunk_scan_fwd())));
      CHECK(whole.faults_of(find_distributed("ssd_chunk_scan_fwd", name), 4) == "");
    }
}

TEST_CASE("sequences that states do not describe can be split by channels") {
  const Axes axes{{"seqlen", size(130)}, {"dim", size(4)}, {"dstate", size(3)}, {"delta_softplus", true}};
  Axes dense = axes;
  dense.insert({{"A", "dense"}, {"method", "foh"}});
  Axes two_samples = axes;
  two_samples.insert({{"method", "foh_exact"}});
  Axes sequences = axes;
  sequences.insert(
      {{"cu_seqlens", true}, {"sequences", size(5)}, {"lengths", "with-empty"}, {"initial_state", true}});
  for (const auto& name : {"cpu-channels", "cpu-alltoall"}) {
    for (const Axes& one : {dense, two_samples, sequences})
      CHECK(WholeCase(make_case(scan_problem(one)))
                .faults_of(find_distributed("selective_scan_fwd", name), 2) == "");
    const Problem packed = ssd_problem({{"seqlen", size(200)},
                                        {"nheads", size(4)},
                                        {"headdim", size(3)},
                                        {"dstate", size(3)},
                                        {"dt_softplus", true},
                                        {"cu_seqlens", true},
                                        {"sequences", size(3)},
                                        {"initial_states", true},
                                        {"final_states", true}});
    CHECK(WholeCase(make_case(packed)).faults_of(find_distributed("ssd_chunk_scan_fwd", name), 2) == "");
  }
}

TEST_CASE("what cannot be split is unsupported, with the reason") {
  const auto scan = [](Axes axes, const OpSpec& op) {
    axes.merge(Axes{{"seqlen", size(256)}, {"dim", size(12)}, {"batch", size(2)}});
    return scan_problem(std::move(axes), op);
  };
  CHECK(reason_of("cpu-channels", scan({}, selective_scan_fwd()), 4) == "");
  CHECK(reason_of("cpu-channels", scan({}, selective_scan_fwd()), 5) ==
        "dim 12 is not a multiple of 5 ranks");
  CHECK(reason_of("cpu-channels", scan({{"groups", size(3)}}, selective_scan_fwd()), 4) ==
        "3 groups do not fit 4 ranks");
  CHECK(reason_of("cpu-channels", scan({{"groups", size(2)}}, selective_scan_bwd()), 4) ==
        "2 ranks share a group, whose dB is the sum of theirs");
  CHECK(reason_of("cpu-channels", scan({{"dtype", "bf16"}}, selective_scan_bwd()), 4) ==
        "adds dB over the ranks, which would round its bf16 twice");
  CHECK(reason_of("cpu-channels", scan({{"dtype", "bf16"}, {"groups", size(4)}}, selective_scan_bwd()), 4) ==
        "");
  CHECK(reason_of("cpu-batch", scan({}, selective_scan_fwd()), 2) == "");
  CHECK(reason_of("cpu-batch", scan({}, selective_scan_fwd()), 3) == "batch 2 is less than 3 ranks");
  CHECK(reason_of("cpu-alltoall", scan({{"seqlen", size(64)}}, selective_scan_fwd()), 2) ==
        "64 steps are too few for 2 ranks: a shard has 64 at least");
}

TEST_CASE("sums over ranks that are left out are found by verification") {
  const Problem scan = scan_problem({{"seqlen", size(200)},
                                     {"batch", size(2)},
                                     {"dim", size(4)},
                                     {"dstate", size(3)},
                                     {"delta_softplus", true}},
                                    selective_scan_bwd());
  const WholeCase whole(make_case(scan));
  for (const auto& name : kSplits) {
    INFO(name);
    const auto& honest = find_distributed("selective_scan_bwd", name);
    CHECK(whole.faults_of(honest, 2) == "");
    CHECK(whole.faults_of(on_team<NothingAdded>(honest), 2) != "");
  }
}
