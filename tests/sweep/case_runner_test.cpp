// Implementations of one case that take turns being timed: drift hits all of them alike, and what one of them
// does wrong meanwhile is put down to that one.

#include "sweep/case_runner.h"

#include <algorithm>
#include <map>
#include <string>

#include "base/errors.h"
#include "catch.h"
#include "inputs/inputs.h"
#include "support/cpu_in_disguise.h"
#include "support/host_tensors.h"
#include "support/run_plan.h"
#include "support/scan_problem.h"
#include "support/spoilt_scan.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

/// How often each is launched before it is timed, with the warm-up.
constexpr int kUntimed = 5;
/// More than two bursts can have (75 samples each at most), so that each has three turns at least.
constexpr int kRuns = 160;

/// What became of the jobs, and every message about them: "start 0", "resume 2", "finish 1".
struct Outcome {
  std::vector<std::string> lines = {};
  std::map<std::size_t, CaseResult> results = {};

  /// The jobs that were resumed, in that order.
  std::string turns() const {
    std::string all;
    for (const auto& line : lines)
      if (line.starts_with("resume ")) all += line.substr(7);
    return all;
  }
};

class Recorder : public RunListener {
 public:
  void starting(std::size_t job, Stage) override { outcome.lines.push_back("start " + std::to_string(job)); }
  void resuming(std::size_t job) override { outcome.lines.push_back("resume " + std::to_string(job)); }
  void finished(std::size_t job, const CaseResult& result) override {
    outcome.lines.push_back("finish " + std::to_string(job));
    CHECK(outcome.results.emplace(job, result).second);  // once
  }

  Outcome outcome;
};

/// Runs them on one case, timed unless its sweep says otherwise, on the CPU or on a device with memory of its
/// own.
Outcome run(const std::vector<Implementation>& chosen, bool own_memory = false, bool timed = true) {
  const auto device = own_memory ? std::make_unique<CpuInDisguise>() : open_device(DeviceKind::cpu);
  Plan plan{.devices = {device->info()}, .cases = {}};
  plan.cases.push_back({make_case(scan_problem({{"seqlen", size(21)}, {"dim", size(3)}})), {}});
  PlannedCase& planned = plan.cases.front();
  planned.the_case.timed = timed;
  for (const auto& implementation : chosen) planned.jobs.push_back({&implementation, 0, {}});
  RunnerOptions options;
  options.timing = {.min_runs = kRuns, .max_runs = kRuns, .max_seconds = 100};
  options.repro = [](const Case&, const Implementation&, const DeviceInfo&) { return std::string("again"); };

  auto inputs = generate_inputs(planned.the_case.problem, planned.the_case.inputs, never_stop);
  const CaseReference reference(compute_reference(planned.the_case.problem, views_of(inputs), never_stop));
  std::vector<NumberedJob> jobs;
  for (std::size_t i = 0; i < chosen.size(); ++i) jobs.push_back({i, &planned.jobs[i]});
  Recorder recorder;
  const FinishedHook no_hook;
  CaseRunner(plan, options, recorder, never_stop, no_hook, planned.the_case, *device, inputs, &reference)
      .run(jobs);
  CHECK(recorder.outcome.results.size() == chosen.size());
  return recorder.outcome;
}

Implementation quiet(const std::string& name) {
  return spoilt_scan(name, [](const Touch&) {});
}

bool is_timed(const CaseResult& result) {
  return result.status == Status::pass && result.timing.at("hot").samples_ms.size() == kRuns;
}

}  // namespace

TEST_CASE("implementations of a case are timed in turns, in rounds of random order that is the same again") {
  const std::vector<Implementation> three{quiet("a"), quiet("b"), quiet("c")};
  const Outcome outcome = run(three);
  for (const auto& [_, result] : outcome.results) CHECK(is_timed(result));
  const std::string turns = outcome.turns();
  REQUIRE(turns.size() >= 4 * 3);  // the last turn is no burst
  std::vector<std::string> rounds;
  for (std::size_t at = 0; at < 3 * 3; at += 3) {  // later rounds may lack one
    std::string round = turns.substr(at, 3);
    rounds.push_back(round);
    std::ranges::sort(round);
    CHECK(round == "012");
  }
  CHECK(std::ranges::adjacent_find(rounds, std::not_equal_to<>()) != rounds.end());
  CHECK(run(three).turns().substr(0, 9) == turns.substr(0, 9));
}

TEST_CASE("all are verified before any is timed, and verified again after all were") {
  std::string order;
  const auto noting = [&](const std::string& name) {
    return spoilt_scan(name, [&order, name](const Touch&) { order += name; });
  };
  run({noting("a"), noting("b")});
  CHECK(order.substr(0, 6) == "aaabbb");  // one launch and two reruns
  CHECK(order.substr(order.size() - 2) == "ab");
  CHECK(order.find("ab", 6) < order.size() - 2);
}

TEST_CASE("a case that is not to be timed is only verified") {
  for (const bool own_memory : {false, true}) {
    const CaseResult result = run({quiet("a")}, own_memory, false).results.at(0);
    CHECK(result.status == Status::pass);
    CHECK(result.determinism->reruns == 2);
    CHECK(result.timing.empty());
    CHECK_FALSE(result.transfers);
  }
}

TEST_CASE("one that throws while it is timed is an error, and the others are timed to the end") {
  const auto tiring = spoilt_scan("tiring", [](const Touch& t) {
    if (t.launch == kUntimed + 60) throw std::runtime_error("gave up");
  });
  const Outcome outcome = run({quiet("a"), tiring, quiet("c")});
  CHECK(outcome.results.at(1).status == Status::error);
  CHECK(outcome.results.at(1).cause == Cause::exception);
  CHECK(outcome.results.at(1).timing.empty());
  CHECK(is_timed(outcome.results.at(0)));
  CHECK(is_timed(outcome.results.at(2)));
  CHECK(std::ranges::count(outcome.lines, "start 0") == 1);
}

TEST_CASE("one that overwrites an input while it is timed is found, and the others are measured without it") {
  for (const bool own_memory : {false, true}) {
    const auto late = spoilt_scan("late", [](const Touch& t) {
      if (t.launch == kUntimed + 60) *t.at("u") = 17;
    });
    const Outcome outcome = run({quiet("a"), late, quiet("c")}, own_memory);
    CHECK(outcome.results.at(1).status == Status::invalid);
    CHECK(outcome.results.at(1).cause == Cause::inputs_changed);
    CHECK(outcome.results.at(1).timing.empty());
    CHECK(is_timed(outcome.results.at(0)));
    CHECK(is_timed(outcome.results.at(2)));
  }
}

TEST_CASE("one that overwrites an input at once is invalid, and those that wait for it are run again") {
  const auto early = spoilt_scan("early", [](const Touch& t) { *t.at("u") = 17; });
  const Outcome outcome = run({quiet("a"), early, quiet("c")}, true);
  CHECK(outcome.results.at(1).status == Status::invalid);
  CHECK(is_timed(outcome.results.at(0)));
  CHECK(is_timed(outcome.results.at(2)));
  CHECK(std::ranges::count(outcome.lines, "start 0") == 2);
}

TEST_CASE("one that finds no memory while others wait is run again alone") {
  Implementation hungry = quiet("hungry");
  int bound = 0;
  hungry.bind = [&bound, bind = hungry.bind](const Problem& problem, const TensorSet& tensors,
                                             void* workspace) {
    if (++bound == 1) throw OutOfMemory("no memory left");
    return bind(problem, tensors, workspace);
  };
  const Outcome outcome = run({quiet("a"), hungry});
  CHECK(is_timed(outcome.results.at(0)));
  CHECK(is_timed(outcome.results.at(1)));
  CHECK(outcome.lines.back() == "finish 1");
}

TEST_CASE("those that do not fit the memory together are timed one after the other") {
  Implementation large = quiet("large");
  large.workspace_bytes = [](const Problem&) { return std::size_t{64}; };
  Implementation huge = quiet("huge");
  // Asked before anything is allocated it wants more than any machine has, and then nothing much.
  int asked = 0;
  huge.workspace_bytes = [&asked](const Problem&) {
    return ++asked == 1 ? std::size_t{1} << 60 : std::size_t{64};
  };
  const Outcome outcome = run({large, huge});
  CHECK(is_timed(outcome.results.at(0)));
  CHECK(is_timed(outcome.results.at(1)));
  const auto finished = std::ranges::find(outcome.lines, "finish 0");
  const auto resumed = std::ranges::find(outcome.lines, "resume 1");
  CHECK(finished < resumed);
}
