// Scans over several ranks that pass states, each rank a process on the CPU: against the reference of the
// whole problem, against one another, and against the shards one after the other bit for bit; and mistakes
// that must be found.

#include "kernels/distributed/state_passing.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "catch.h"
#include "inputs/inputs.h"
#include "kernels/distributed/time_split.h"
#include "kernels/selective_scan/distributed/host_shard.h"
#include "kernels/ssd_chunk_scan/distributed/host_shard.h"
#include "support/mistaken_scan.h"
#include "support/ranks.h"
#include "support/run_plan.h"
#include "support/sharded_problems.h"
#include "support/team_run.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

const std::vector<std::string> kAlgorithms{"cpu-rerun", "cpu-twopass", "cpu-chain"};

const std::vector<ProblemAt> kScanProblems{
    [](std::int64_t seqlen, std::size_t turn) { return scan_at(seqlen, turn, selective_scan_fwd()); },
    [](std::int64_t seqlen, std::size_t turn) { return ssd_at(seqlen, turn, ssd_chunk_scan_fwd()); }};

/// A tenth of the steps are remembered, about, that the model's inputs are.
void die_out_soon(const HostTensor& input) {
  if (input.spec.name != "A") return;
  const TensorView view = real_view(input.view());
  for (std::int64_t i = 0; i < element_count(view.shape); ++i) static_cast<float*>(view.data)[i] *= 300;
}

using MakeShard = std::unique_ptr<LocalScan> (*)(const Problem&, const TensorSet&);

/// An algorithm's launch of a test's own, on the shard of a rank.
using OwnLaunch =
    std::function<void(LocalScan& scan, Communicator& team, const TensorSet& parts, float* workspace)>;

/// The implementation with another launch.
DistributedImplementation with_launch(const DistributedImplementation& of, MakeShard make, OwnLaunch launch) {
  DistributedImplementation changed = of;
  changed.bind = [=](const Problem& whole, const TensorSet& parts, void* workspace,
                     Communicator& team) -> Launch {
    const std::shared_ptr<LocalScan> scan = make(time_part(whole, team.rank(), team.size()), parts);
    return [=, &team](void*) { launch(*scan, team, parts, static_cast<float*>(workspace)); };
  };
  return changed;
}

MakeShard shard_of_op(const std::string& op) {
  if (op == "selective_scan_fwd")
    return [](const Problem& part, const TensorSet& tensors) { return scan_shards::on_host(part, tensors); };
  return [](const Problem& part, const TensorSet& tensors) { return ssd_shards::on_host(part, tensors); };
}

std::vector<std::byte> bytes_of(const TensorView& view) {
  const auto count = static_cast<std::size_t>(element_count(view.shape)) * size_of(view.dtype);
  const auto* data = static_cast<const std::byte*>(view.data);
  return {data, data + count};
}

/// Throws unless the outputs are those of the whole shard in one go from the same state.
void must_be_in_sequence(LocalScan& scan, const Rerun& rerun, const TensorSet& parts) {
  const auto out = bytes_of(parts.at("out"));
  std::vector<float> leaving(static_cast<std::size_t>(scan.sizes().state_floats));
  const float* entering = rerun.entering() != nullptr ? rerun.entering() : scan.initial_state();
  scan.run({0, scan.sizes().steps}, entering, leaving.data(), true, nullptr);
  if (out != bytes_of(parts.at("out"))) throw std::runtime_error("out is not that of the shards in sequence");
}

OwnLaunch rerun_in_sequence(const std::function<void(const Rerun&, Communicator&)>& look) {
  return [=](LocalScan& scan, Communicator& team, const TensorSet& parts, float* workspace) {
    Rerun rerun(scan, team, host_stops(scan.sizes().steps), workspace);
    rerun.launch(nullptr);
    const std::size_t state = static_cast<std::size_t>(scan.sizes().state_floats);
    std::vector<float> last;
    if (scan.last_state() != nullptr) last.assign(scan.last_state(), scan.last_state() + state);
    must_be_in_sequence(scan, rerun, parts);
    if (team.rank() + 1 == team.size() && scan.last_state() != nullptr) {
      std::vector<float> leaving(state);
      const float* entering = rerun.entering() != nullptr ? rerun.entering() : scan.initial_state();
      scan.run({0, scan.sizes().steps}, entering, leaving.data(), false, nullptr);
      if (std::memcmp(leaving.data(), last.data(), state * sizeof(float)) != 0)
        throw std::runtime_error("the last state is not that of the shards in sequence");
    }
    look(rerun, team);
  };
}

}  // namespace

TEST_CASE("shards of time begin at blocks of 64 steps and differ by a block") {
  for (const std::int64_t steps : {1, 63, 64, 65, 128, 1000, 1 << 20})
    for (const int ranks : {1, 2, 3, 4, 7}) {
      std::int64_t end = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const IndexRange shard = shard_of(steps, rank, ranks);
        CHECK(shard.begin == end);
        CHECK((shard.begin % 64 == 0 || shard.count() == 0));
        CHECK(shard.count() <= (steps / 64 / ranks + 2) * 64);
        end = shard.end;
      }
      CHECK(end == steps);
    }
}

TEST_CASE("states are compared at rising steps, and at the end") {
  CHECK(host_stops(1) == std::vector<std::int64_t>{1});
  CHECK(host_stops(64) == std::vector<std::int64_t>{64});
  CHECK(host_stops(200) == std::vector<std::int64_t>{64, 128, 200});
  CHECK(host_stops(40000) == std::vector<std::int64_t>{64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384,
                                                       20480, 24576, 28672, 32768, 40000});
}

TEST_CASE("what cannot be passed from shard to shard is unsupported, with the reason") {
  for (const auto& name : kAlgorithms) {
    const auto& scan = find_distributed("selective_scan_fwd", name);
    const auto& ssd = find_distributed("ssd_chunk_scan_fwd", name);
    CHECK(scan.unsupported(scan_problem({{"seqlen", size(128)}}), 2) == std::nullopt);
    CHECK(scan.unsupported(scan_problem({{"seqlen", size(129)}}), 3) == std::nullopt);
    CHECK(scan.unsupported(scan_problem({{"seqlen", size(128)}}), 3) ==
          "128 steps are too few for 3 ranks: a shard has 64 at least");
    for (const char* method : {"foh_exact", "trapezoidal"})
      CHECK(scan.unsupported(scan_problem({{"seqlen", size(128)}, {"method", method}}), 2) ==
            "passes states alone, and a method of two samples needs the last input beside them");
    CHECK(scan.unsupported(scan_problem({{"seqlen", size(128)}, {"A", "dense"}, {"method", "foh"}}), 2) ==
          "has diagonal A only");
    CHECK(scan.unsupported(scan_problem({{"seqlen", size(128)}, {"cu_seqlens", true}}), 2) ==
          "has one sequence a batch, no cu_seqlens");
    CHECK(ssd.unsupported(ssd_problem({{"seqlen", size(128)}, {"cu_seqlens", true}}), 2) ==
          "has one sequence a batch, or seq_idx, but no cu_seqlens");
  }
}

TEST_CASE("ranks that pass states agree with the reference at every length") {
  std::size_t turn = 0;
  for (const ProblemAt& problem_at : kScanProblems)
    for (const int ranks : {2, 3, 4})
      for (const std::int64_t seqlen : {64 * ranks - 1, 64 * ranks, 64 * ranks + 1, 1000}) {
        ++turn;
        const WholeCase whole(make_case(problem_at(seqlen, turn), turn % 3 == 0 ? "slow_decay" : "mamba"));
        for (const auto& name : kAlgorithms) {
          INFO(name << ", " << ranks << " ranks");
          CHECK(whole.faults_of(find_distributed(whole.the_case().problem.op().name, name), ranks) == "");
        }
      }
}

TEST_CASE("ranks that pass states agree with the reference for every option") {
  for (const ProblemAt& problem_at : kScanProblems)
    for (std::size_t turn = 0; turn < 21; ++turn) {
      const WholeCase whole(make_case(problem_at(150 + static_cast<std::int64_t>(turn), turn),
                                      turn % 2 == 0 ? "slow_decay" : "trained"));
      const auto& name = kAlgorithms[turn % 3];
      INFO(name);
      CHECK(whole.faults_of(find_distributed(whole.the_case().problem.op().name, name), 3) == "");
    }
}

TEST_CASE("one rank is a team too") {
  for (const ProblemAt& problem_at : kScanProblems) {
    const WholeCase whole(make_case(problem_at(100, 1)));
    for (const auto& name : kAlgorithms)
      CHECK(whole.faults_of(find_distributed(whole.the_case().problem.op().name, name), 1) == "");
  }
}

TEST_CASE("what is run again is bit for bit the shards one after the other, wherever that stops") {
  for (const ProblemAt& problem_at : kScanProblems)
    for (const bool dies_out : {false, true})
      for (std::size_t turn = 0; turn < 3; ++turn) {
        const TeamChanges changes{.edit = dies_out ? die_out_soon : [](const HostTensor&) {}};
        const WholeCase whole(make_case(problem_at(1000, turn), dies_out ? "mamba" : "slow_decay"), changes);
        const auto& op = whole.the_case().problem.op().name;
        // Stops early where states die out and goes on to the end where they last; with seq_idx (odd turns of
        // SSD) a state may die at any border.
        const bool is_plain = op == "selective_scan_fwd" || turn % 2 == 0;
        const auto look = [=](const Rerun& rerun, Communicator& team) {
          if (team.rank() == 0 || !is_plain) return;
          if (dies_out && rerun.steps_again() > 256) throw std::runtime_error("runs too much again");
          if (!dies_out && rerun.steps_again() < 448)
            throw std::runtime_error("stops before states are equal");
        };
        const auto implementation =
            with_launch(find_distributed(op, "cpu-rerun"), shard_of_op(op), rerun_in_sequence(look));
        INFO((dies_out ? "dies out" : "lasts"));
        CHECK(whole.faults_of(implementation, 2) == "");
      }
}

TEST_CASE("both ways to pass states give the same bits") {
  for (const ProblemAt& problem_at : kScanProblems)
    for (std::size_t turn = 0; turn < 4; ++turn) {
      const Case one = make_case(problem_at(400, turn));
      const auto& op = one.problem.op().name;
      const TeamOutcome rerun = run_team(one, find_distributed(op, "cpu-rerun"), 3);
      const TeamOutcome two_pass = run_team(one, find_distributed(op, "cpu-twopass"), 3);
      REQUIRE(rerun.failures() + two_pass.failures() == "");
      for (std::size_t i = 0; i < rerun.outputs.size(); ++i)
        CHECK(bytes_of(rerun.outputs[i].view()) == bytes_of(two_pass.outputs[i].view()));
    }
}

// Mistakes, one each: what they change, and that it is found.

namespace {

/// A shard in host memory with a mistake, and what it needs.
struct MistakenHostScan {
  std::vector<float> elsewhere;
  MistakenScan scan;

  MistakenHostScan(LocalScan& honest, Mistake mistake)
      : elsewhere(static_cast<std::size_t>(honest.sizes().state_floats)),
        scan(honest, mistake, elsewhere.data(),
             [](float* at, std::int64_t count) { std::fill_n(at, count, 0.0F); }) {}
};

Problem plain_scan() {
  return scan_problem(
      {{"seqlen", size(400)}, {"dim", size(4)}, {"dstate", size(3)}, {"delta_softplus", true}});
}

Problem plain_ssd() {
  return ssd_problem({{"seqlen", size(400)},
                      {"nheads", size(3)},
                      {"headdim", size(4)},
                      {"dstate", size(3)},
                      {"dt_softplus", true},
                      {"final_states", true}});
}

}  // namespace

TEST_CASE("mistakes in passing states are found by verification") {
  for (const Problem& problem : {plain_scan(), plain_ssd()}) {
    const auto& op = problem.op().name;
    const auto& honest = find_distributed(op, "cpu-rerun");
    const WholeCase whole(make_case(problem, "slow_decay"));
    CHECK(whole.faults_of(honest, 3) == "");

    INFO(op);
    const auto shifted = with_launch(
        honest, shard_of_op(op), [](LocalScan& scan, Communicator& team, const TensorSet&, float* workspace) {
          ShiftedGather wrong(team);
          MistakenHostScan summarized(scan, Mistake::none);
          Rerun(summarized.scan, wrong, host_stops(scan.sizes().steps), workspace).launch(nullptr);
        });
    CHECK(whole.faults_of(shifted, 3) != "");

    for (const Mistake mistake : {Mistake::own_shard_twice, Mistake::wrong_neighbour, Mistake::decay_left_out,
                                  Mistake::stopped_early, Mistake::last_state_of_first_pass}) {
      INFO("mistake " << static_cast<int>(mistake));
      const auto mistaken =
          with_launch(honest, shard_of_op(op),
                      [=](LocalScan& scan, Communicator& team, const TensorSet&, float* workspace) {
                        MistakenHostScan wrong(scan, mistake);
                        Rerun(wrong.scan, team, host_stops(scan.sizes().steps), workspace).launch(nullptr);
                      });
      CHECK(whole.faults_of(mistaken, 3) != "");
    }

    const TeamChanges late{.edit = nullptr, .input_box = [](Box box, int rank) {
                             if (rank > 0) box.at('l') = {box.at('l').begin - 1, box.at('l').end - 1};
                             return box;
                           }};
    CHECK(whole.faults(run_team(whole.the_case(), honest, 3, late).outputs) != "");
  }
}

TEST_CASE(
    "a second pass that stops too early is found by its bits where tolerances are wide enough to pass") {
  for (const Problem& problem : {plain_scan(), plain_ssd()}) {
    const auto& op = problem.op().name;
    const auto one = make_case(problem, "mamba");
    // States differ in their last bits when it stops.
    const auto mistaken =
        with_launch(find_distributed(op, "cpu-rerun"), shard_of_op(op),
                    [](LocalScan& scan, Communicator& team, const TensorSet& parts, float* workspace) {
                      MistakenHostScan wrong(scan, Mistake::stopped_early);
                      Rerun rerun(wrong.scan, team, host_stops(scan.sizes().steps), workspace);
                      rerun.launch(nullptr);
                      must_be_in_sequence(scan, rerun, parts);
                    });
    CHECK(run_team(one, mistaken, 3).endings[1] == "out is not that of the shards in sequence");
  }
}
