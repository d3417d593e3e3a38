// Who gets what, and what becomes of workers that end: with workers that are no processes.

#include "supervise/supervisor.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <deque>

#include "base/errors.h"
#include "catch.h"
#include "ops/linear_scan/linear_scan.h"
#include "record/record_writer.h"
#include "support/run_plan.h"
#include "sweep/job_result.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

/// One after the other, of so many elements, and with a reference of its own each.
Plan plan_of(const std::vector<std::int64_t>& lengths) {
  std::vector<Case> cases;
  for (const std::int64_t length : lengths)
    cases.push_back(make_case(Problem(
        linear_scan(),
        {{"dtype", "f32"}, {"batch", std::int64_t{1}}, {"seqlen", length}, {"dim", std::int64_t{1}}})));
  return make_plan(std::move(cases), {list_devices().front()},
                   {.impl = "cpu-scalar", .case_id = "", .op = "", .dtype = "", .method = ""});
}

RunnerOptions options() {
  RunnerOptions options;
  options.time = false;
  options.repro = [](const Case&, const Implementation&, const DeviceInfo&) { return std::string("again"); };
  return options;
}

/// What the workers of a test did, and what they are to do.
struct Script {
  const Plan& plan;
  RunnerOptions how = options();
  bool they_die_waiting = false;  ///< for others, with inputs and reference of a case
  bool they_stay = false;         ///< with the run of a job, and cannot be killed
  bool they_leave = false;        ///< with inputs of a case, for their device does not work
  std::vector<std::vector<std::size_t>> given = {};  ///< to any, in order
  std::size_t at_work = 0, most_at_work = 0;
};

class FakeWorker : public WorkerHandle {
 public:
  /// `dies`: before it does anything. Has a line for the last of so many times that it is asked, and of so
  /// many while it waits for others.
  FakeWorker(Script& script, bool dies, int patience, int wait)
      : script_(script), dies_(dies), patience_(patience), wait_(wait), file_(memfd_create("orders", 0)) {}
  ~FakeWorker() override { close(file_); }
  FakeWorker(const FakeWorker&) = delete;
  FakeWorker& operator=(const FakeWorker&) = delete;
  FakeWorker(FakeWorker&&) = delete;
  FakeWorker& operator=(FakeWorker&&) = delete;

  void order(const std::string& bytes) override {
    const off_t before = lseek(file_, 0, SEEK_CUR);
    REQUIRE(write(file_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    if (!std::exchange(has_header_, true)) return;
    lseek(file_, before, SEEK_SET);
    const auto jobs = next_jobs(file_, script_.plan.job_count());
    REQUIRE(jobs);
    auto& given = script_.given.emplace_back();
    for (std::size_t job = 0; job < jobs->size(); ++job)
      if ((*jobs)[job]) given.push_back(job);
    if (dies_) return;
    if (script_.they_die_waiting) {
      lines_.push_back(
          to_line({.kind = Message::Kind::starting, .job = given.front(), .stage = Stage::reference}));
      lines_.push_back(to_line({.kind = Message::Kind::waiting}));
      return;
    }
    if (script_.they_stay) {
      lines_.push_back(to_line({.kind = Message::Kind::starting, .job = given.front(), .stage = Stage::run}));
      return;
    }
    if (script_.they_leave) {
      lines_.push_back(
          to_line({.kind = Message::Kind::starting, .job = given.front(), .stage = Stage::inputs}));
      lines_.push_back(to_line({.kind = Message::Kind::leaving}));
      return;
    }
    script_.most_at_work = std::max(script_.most_at_work, ++script_.at_work);
    for (const std::size_t job : given) {
      const auto& [planned, the_job] = script_.plan.job(job);
      CaseResult result = blank_result(script_.plan, planned->the_case, *the_job, script_.how);
      result.status = Status::pass;
      lines_.push_back(to_line({.kind = Message::Kind::starting, .job = job, .stage = Stage::run}));
      lines_.push_back(to_line({.kind = Message::Kind::waiting}));
      lines_.push_back(to_line({.kind = Message::Kind::resuming, .job = job}));
      lines_.push_back(to_line({.kind = Message::Kind::finished, .job = job, .text = case_record(result)}));
    }
    lines_.push_back(to_line({.kind = Message::Kind::done}));
  }
  void no_more_orders() override {}
  Event next_line(std::string& line) override {
    if (dies_ || (script_.they_die_waiting && lines_.empty())) return Event::closed;
    if (lines_.empty() || ++asked_ < (is_waiting_ ? wait_ : patience_)) return Event::nothing;
    asked_ = 0;
    line = lines_.front();
    is_waiting_ = line == "waiting";
    lines_.pop_front();
    if (lines_.empty() && script_.at_work > 0) --script_.at_work;
    return Event::line;
  }
  void watch(std::vector<pollfd>& /*descriptors*/) const override {}
  void end(Clock::duration /*grace*/) override {}
  std::optional<Ending> ended() override {
    if (script_.they_stay) return Ending{.how = {Cause::timeout, "stays"}, .is_gone = false};
    return Ending{.how = {Cause::crash, "gone"}};
  }

 private:
  Script& script_;
  bool dies_;
  int patience_, wait_;
  int file_;
  bool has_header_ = false, is_waiting_ = false;
  int asked_ = 0;
  std::deque<std::string> lines_;
};

SlotPlace place(Script& script, const std::string& name, bool dies = false, int patience = 1, int wait = 1) {
  return {.name = name, .place = {}, .start = [&script, dies, patience, wait] {
            return std::make_unique<FakeWorker>(script, dies, patience, wait);
          }};
}

std::vector<CaseResult> run(Script& script, std::vector<SlotPlace> places, SupervisorOptions how = {},
                            const JobSet& jobs = {}) {
  static const std::atomic<bool> never{false};
  Collector collector;
  how.slots = std::move(places);
  how.look_every = std::chrono::milliseconds(1);
  Supervisor(script.plan, script.how, how, collector, never)
      .run(jobs.empty() ? JobSet(script.plan.job_count(), true) : jobs);
  return collector.results;
}

}  // namespace

TEST_CASE("the only slot gets all jobs at once, in the plan's order, and records say nothing of it") {
  const Plan plan = plan_of({5, 70, 6});
  Script script{plan};
  const auto results = run(script, {place(script, "")});
  CHECK(script.given == std::vector<std::vector<std::size_t>>{{0, 1, 2}});
  REQUIRE(results.size() == 3);
  for (const auto& result : results) {
    CHECK(result.status == Status::pass);
    CHECK(result.slot.empty());
    CHECK_FALSE(result.beside);
  }
}

TEST_CASE("several slots get units, the largest first, and the next when they are free") {
  const Plan plan = plan_of({5, 70, 6, 900, 8});
  Script script{plan};
  const auto results = run(script, {place(script, "cpu:0", false, 50), place(script, "cpu:1")});
  REQUIRE(results.size() == 5);
  REQUIRE(script.given.size() == 5);
  CHECK(script.given[0] == std::vector<std::size_t>{3});  // to the slow one, which does nothing else
  CHECK(script.given[1] == std::vector<std::size_t>{1});
  CHECK(script.given[4] == std::vector<std::size_t>{0});
  CHECK(script.most_at_work == 2);
  for (const auto& result : results) {
    CHECK(result.status == Status::pass);
    CHECK(result.slot == (result.the_case.problem.size("seqlen") == 900 ? "cpu:0" : "cpu:1"));
    CHECK(result.beside.value() <= 1);
  }
  CHECK(results.front().beside == 1);
}

TEST_CASE("jobs that an earlier run did are handed to nobody") {
  const Plan plan = plan_of({5, 6, 7});
  Script script{plan};
  CHECK(run(script, {place(script, "cpu:0"), place(script, "cpu:1")}, {}, {false, true, false}).size() == 1);
  CHECK(script.given == std::vector<std::vector<std::size_t>>{{1}});
}

TEST_CASE("units that do not fit the memory of their host together run one after the other") {
  const Plan plan = plan_of({500, 501, 502});
  for (const bool fit : {false, true}) {
    Script script{plan};
    const std::size_t bytes = fit ? std::size_t{1} << 30 : 1;
    CHECK(run(script, {place(script, "cpu:0", false, 3), place(script, "cpu:1", false, 3)},
              {.slots = {}, .host_bytes = {{"", bytes}}, .dump_folder = ""})
              .size() == 3);
    CHECK(script.most_at_work == (fit ? 2 : 1));
  }
}

TEST_CASE("a slot whose workers end before they do anything goes out of service, and others do its unit") {
  const Plan plan = plan_of({5, 6, 7});
  Script script{plan};
  std::string said;
  SupervisorOptions how;
  how.slot.warn = [&said](const std::string& message) { said += message; };
  const auto results = run(script, {place(script, "cuda:0", true), place(script, "cuda:1")}, how);
  REQUIRE(results.size() == 3);
  for (const auto& result : results) CHECK(result.slot == "cuda:1");
  CHECK(script.given.size() == 3 + 2);
  CHECK(said.find("worker processes end before the first case: gone") != std::string::npos);
}

TEST_CASE("without a slot that works all jobs are errors that say why") {
  const Plan plan = plan_of({5, 6, 7});
  Script script{plan};
  const auto results = run(script, {place(script, "cuda:0", true), place(script, "cuda:1", true)});
  REQUIRE(results.size() == 3);
  for (const auto& result : results) {
    CHECK(result.cause == Cause::worker);
    CHECK(result.reason == "worker processes end before the first case: gone");
  }
}

TEST_CASE("a worker that cannot be killed costs its job and its slot, whose GPU it may still use") {
  const Plan plan = plan_of({5, 900, 6});
  Script script{plan};
  Script of_first{plan};
  of_first.they_stay = true;
  std::string said;
  SupervisorOptions how;
  how.slot.timeout_seconds = 0.05;
  how.slot.warn = [&said](const std::string& message) { said += message; };
  const auto results = run(script, {place(of_first, "cuda:0"), place(script, "cuda:1")}, how);
  REQUIRE(results.size() == 3);
  for (const auto& result : results) {
    const bool is_first = result.the_case.problem.size("seqlen") == 900;
    CHECK(result.status == (is_first ? Status::error : Status::pass));
    CHECK(result.reason == (is_first ? "timed out after 0.05 s" : ""));
  }
  CHECK(of_first.given.size() == 1);
  CHECK(said.empty());  // it had nothing left to give back
}

TEST_CASE("workers that leave before they finish anything have a device that does not work") {
  const Plan plan = plan_of({5, 6});
  Script script{plan};
  script.they_leave = true;
  const auto results = run(script, {place(script, "cuda:0"), place(script, "cuda:1")});
  CHECK(script.given.size() == 2 * 2);  // each slot tried twice
  REQUIRE(results.size() == 2);
  for (const auto& result : results) {
    CHECK(result.cause == Cause::worker);
    CHECK(result.reason == "worker processes end before the first case: gone");
  }
}

TEST_CASE("a worker that dies while it waits for others costs its job, and no reference is blamed") {
  const Plan plan = plan_of({5, 6});
  Script script{plan};
  script.they_die_waiting = true;
  const auto results = run(script, {place(script, "cpu:0")});
  REQUIRE(results.size() == 2);
  for (const auto& result : results) {
    CHECK(result.cause == Cause::crash);
    CHECK(result.reason == "gone");
  }
}

TEST_CASE("the time for which others have the host is no case's") {
  const Plan plan = plan_of({5});
  Script script{plan};
  SupervisorOptions how;
  how.slot.timeout_seconds = 0.3;
  const auto results = run(script, {place(script, "cpu:0", false, 1, 500)}, how);  // half a second
  REQUIRE(results.size() == 1);
  CHECK(results[0].status == Status::pass);
  const auto late = run(script, {place(script, "cpu:0", false, 500, 1)}, how);
  REQUIRE(late.size() == 1);
  CHECK(late[0].cause == Cause::timeout);
}
