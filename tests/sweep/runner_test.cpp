// What the runner makes of implementations that fail: each is a result of its own, and the sweep goes on.

#include "sweep/runner.h"

#include <atomic>
#include <cmath>
#include <cstring>

#include "base/errors.h"
#include "catch.h"
#include "support/find_implementation.h"
#include "support/run_plan.h"
#include "support/scan_problem.h"
#include "support/step_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

/// An implementation whose launch does what the test wants with its tensors.
Implementation make_implementation(std::string name, std::function<void(const TensorSet&)> work) {
  return {.name = std::move(name),
          .op = "selective_scan_fwd",
          .device = DeviceKind::cpu,
          .summary = "test",
          .unsupported = [](const Problem&) { return std::optional<std::string>(); },
          .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
          .work = [](const Problem&) { return Work{}; },
          .bind = [work = std::move(work)](const Problem&, const TensorSet& tensors, void*) -> Launch {
            return [work, tensors](void*) { work(tensors); };
          }};
}

const Implementation& scalar_scan() {
  return find_implementation("selective_scan_fwd", "cpu-scalar");
}

/// One small case for each of the implementations, in order.
std::vector<CaseResult> run_jobs(const std::vector<const Implementation*>& chosen,
                                 const RunnerOptions& options = {}) {
  Plan plan{.devices = {list_devices().front()}, .cases = {}};
  plan.cases.push_back({make_case(scan_problem({{"seqlen", size(20)}, {"dim", size(2)}})), {}});
  for (const auto* implementation : chosen) plan.cases[0].jobs.push_back({implementation, 0, {}});
  return run_plan(plan, options);
}

}  // namespace

TEST_CASE(
    "what an implementation is known to get wrong is beside the reason of a fail, and of nothing else") {
  const auto wrong = [](const TensorSet&) {};  // outputs stay NaN
  auto known = make_implementation("known", wrong);
  known.known_failure = "writes nothing";
  Implementation right = scalar_scan();
  right.known_failure = "writes nothing";
  const auto unknown = make_implementation("unknown", wrong);
  const auto results = run_jobs({&known, &right, &unknown});
  REQUIRE(results.size() == 3);
  CHECK(results[0].status == Status::fail);
  CHECK(results[0].reason.ends_with("; known failure: writes nothing"));
  CHECK(results[1].status == Status::pass);
  CHECK(results[1].reason.empty());
  CHECK(results[2].status == Status::fail);
  CHECK(results[2].reason.find("known") == std::string::npos);
}

TEST_CASE("an implementation that throws is an error with its words, and the next one runs") {
  const auto broken = make_implementation("broken", [](const TensorSet&) { throw DeviceError("it broke"); });
  const auto hungry =
      make_implementation("hungry", [](const TensorSet&) { throw OutOfMemory("no memory left"); });
  const auto results = run_jobs({&broken, &hungry, &scalar_scan()});
  REQUIRE(results.size() == 3);
  CHECK(results[0].status == Status::error);
  CHECK(results[0].cause == Cause::device_error);
  CHECK(results[0].reason == "it broke");
  CHECK(results[1].status == Status::error);
  CHECK(results[1].cause == Cause::out_of_memory);
  CHECK(results[1].reason == "no memory left");
  CHECK(results[2].status == Status::pass);
}

TEST_CASE("an output that is never written is not a pass") {
  const auto idle = make_implementation("idle", [](const TensorSet&) {});
  const auto result = run_jobs({&idle}).front();
  CHECK(result.status == Status::fail);
  CHECK(result.outputs.at("out").nonfinite == 40);
  CHECK(result.cause == Cause::nonfinite);
}

TEST_CASE("an output that is zero everywhere is not a pass") {
  const auto zero = make_implementation("zero", [](const TensorSet& tensors) {
    std::memset(tensors.at("out").data, 0, 40 * sizeof(float));
    std::memset(tensors.at("last_state").data, 0, 2 * sizeof(float));
  });
  const auto result = run_jobs({&zero}).front();
  CHECK(result.status == Status::fail);
  CHECK(result.cause == Cause::tolerance);
  CHECK(result.timing.empty());
}

TEST_CASE("one wrong element in last_state alone is found and named") {
  const auto off_by_one = make_implementation("off", [](const TensorSet& tensors) {
    scalar_scan().bind(scan_problem({{"seqlen", size(20)}, {"dim", size(2)}}), tensors, nullptr)(nullptr);
    static_cast<float*>(tensors.at("last_state").data)[1] *= 1.001F;
  });
  const auto result = run_jobs({&off_by_one}).front();
  CHECK(result.status == Status::fail);
  CHECK(result.outputs.at("out").passed());
  CHECK(result.reason.starts_with("last_state at (0, 1, 0): expected "));
}

TEST_CASE("an output that is updated in place starts from the input for every implementation") {
  const Problem problem = mamba2_step({{"nheads", size(2)}, {"headdim", size(3)}, {"dstate", size(4)}});
  std::vector<std::vector<float>> states_seen;
  const Implementation& step = find_implementation("selective_state_update", "cpu-step");
  auto spying = step;
  spying.bind = [&](const Problem& p, const TensorSet& tensors, void* workspace) -> Launch {
    return [&, launch = step.bind(p, tensors, workspace), tensors](void* stream) {
      const auto* state = static_cast<const float*>(tensors.at("state").data);
      states_seen.emplace_back(state, state + 24);
      launch(stream);
    };
  };
  auto idle = step;
  idle.bind = [](const Problem&, const TensorSet&, void*) -> Launch { return [](void*) {}; };
  Plan plan{.devices = {list_devices().front()}, .cases = {}};
  plan.cases.push_back({make_case(problem), {{&spying, 0, {}}, {&spying, 0, {}}, {&idle, 0, {}}}});
  const auto results = run_plan(plan);
  REQUIRE(results.size() == 3);
  CHECK(results[0].status == Status::pass);
  CHECK(results[1].status == Status::pass);
  REQUIRE(states_seen.size() == 6);  // each of both is launched three times
  for (const auto& seen : states_seen) CHECK(seen == states_seen[0]);
  CHECK(results[0].outputs.contains("state"));
  // What is never updated is not a pass either.
  CHECK(results[2].status == Status::fail);
  CHECK_FALSE(results[2].outputs.at("state").passed());
}

TEST_CASE("timing an update in place keeps updating it, after it was judged") {
  const Implementation& step = find_implementation("selective_state_update", "cpu-step");
  int launches = 0;
  float last = 0;
  auto counting = step;
  counting.bind = [&](const Problem& p, const TensorSet& tensors, void* workspace) -> Launch {
    return [&, launch = step.bind(p, tensors, workspace), tensors](void* stream) {
      launch(stream);
      ++launches;
      last = *static_cast<const float*>(tensors.at("state").data);
    };
  };
  Plan plan{.devices = {list_devices().front()}, .cases = {}};
  plan.cases.push_back(
      {make_case(mamba1_step({{"dim", size(2)}, {"dstate", size(4)}})), {{&counting, 0, {}}}});
  RunnerOptions options;
  options.timing = {.min_runs = 100, .max_runs = 100, .max_seconds = 100};
  options.repro = [](const Case&, const Implementation&, const DeviceInfo&) { return std::string(); };
  Collector collector;
  const std::atomic<bool> never{false};
  Runner(plan, options, collector, never).run();
  REQUIRE(collector.results.size() == 1);
  CHECK(collector.results[0].status == Status::pass);
  CHECK_FALSE(collector.results[0].timing.empty());
  CHECK(launches > 100);
  CHECK(std::isfinite(last));  // decays are below 1, so that it comes to rest
}

TEST_CASE("without verification nothing passes") {
  RunnerOptions options;
  options.verify = false;
  CHECK(run_jobs({&scalar_scan()}, options).front().status == Status::unverified);
}

TEST_CASE("a run that is told to stop keeps what is finished") {
  std::atomic<bool> stop{false};
  const auto stopper = make_implementation("stopper", [&stop](const TensorSet& tensors) {
    scalar_scan().bind(scan_problem({{"seqlen", size(20)}, {"dim", size(2)}}), tensors, nullptr)(nullptr);
    stop = true;
  });
  Plan plan{.devices = {list_devices().front()}, .cases = {}};
  for (int i = 0; i < 2; ++i)
    plan.cases.push_back(
        {make_case(scan_problem({{"seqlen", size(20)}, {"dim", size(2)}})), {{&stopper, 0, {}}}});
  RunnerOptions options;
  options.time = false;
  options.repro = [](const Case&, const Implementation&, const DeviceInfo&) { return std::string(); };
  Collector collector;
  CHECK_THROWS_AS(Runner(plan, options, collector, stop).run(), Interrupted);
  CHECK(collector.results.size() == 1);
}
