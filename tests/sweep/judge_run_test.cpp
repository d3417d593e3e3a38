// Implementations that do what they must not, each in one way: that way is found and named, and what runs
// after them is not harmed.

#include "sweep/judge_run.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "catch.h"
#include "inputs/inputs.h"
#include "support/cpu_in_disguise.h"
#include "support/gpu.h"
#include "support/host_tensors.h"
#include "support/run_plan.h"
#include "support/scan_problem.h"
#include "support/spoilt_scan.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

const Implementation& honest() {
  return find_implementation("selective_scan_fwd", "cpu-scalar");
}

Problem problem() {
  return scan_problem({{"seqlen", size(21)}, {"dim", size(3)}, {"z", true}});
}

/// The implementations one after the other on one case, without timing.
std::vector<CaseResult> run_all(const std::vector<const Implementation*>& chosen,
                                const RunnerOptions& options = {},
                                const DeviceInfo& device = list_devices().front()) {
  Plan plan{.devices = {device}, .cases = {}};
  plan.cases.push_back({make_case(problem()), {}});
  for (const auto* implementation : chosen) plan.cases[0].jobs.push_back({implementation, 0, {}});
  return run_plan(plan, options);
}

/// What comes of one that is spoilt; an honest one after it has to pass with the bits that it has alone.
CaseResult result_of(const Implementation& spoilt, const RunnerOptions& options = {}) {
  const auto results = run_all({&spoilt, &honest()}, options);
  REQUIRE(results.size() == 2);
  CHECK(results[1].status == Status::pass);
  CHECK(results[1].outputs.at("out").max_abs == run_all({&honest()}).front().outputs.at("out").max_abs);
  return results[0];
}

/// The reason why one that writes where it must not is invalid.
std::string invalid_reason(Cause cause, const std::function<void(const Touch&)>& spoil) {
  const CaseResult result = result_of(spoilt_scan("spoilt", spoil));
  CHECK(result.status == Status::invalid);
  CHECK(result.cause == cause);
  return result.reason;
}

/// All steps without a break; without a policy it is not timed.
void judge_run(const CaseOnDevice& on, const Implementation& implementation,
               const std::optional<TimingPolicy>& timing, CaseResult& result) {
  RunJudge judge(on, implementation, never_stop, result);
  judge.verify({});
  if (judge.is_fine() && timing) {
    judge.start_timing(*timing);
    while (!judge.timer().is_done() && judge.is_fine()) judge.timer().burst(judge.time_copies_if_free());
    if (judge.is_fine()) judge.finish_timing();
  }
  judge.finish();
}

/// Timed in exactly `runs` runs after the warm-up.
CaseResult timed(const Implementation& implementation, int runs) {
  const auto device = open_device(DeviceKind::cpu);
  const Case the_case = make_case(problem());
  const auto inputs = generate_inputs(the_case.problem, the_case.inputs, never_stop);
  const CaseReference reference(compute_reference(the_case.problem, views_of(inputs), never_stop));
  const DeviceInputs on_device(*device, inputs);
  CaseResult result{.the_case = the_case, .impl = implementation.name, .device = "cpu"};
  const TimingPolicy timing{
      .min_runs = runs, .max_runs = runs, .max_seconds = std::numeric_limits<double>::infinity()};
  judge_run({*device, on_device, &reference}, implementation, timing, result);
  return result;
}

/// Streams that implementations can tell apart, and that do nothing.
class StreamsDevice : public CpuInDisguise {
 public:
  void* stream() override { return &streams_.at(second_ ? 1 : 0); }
  void use_second_stream(bool second) override { second_ = second; }

 private:
  std::array<char, 2> streams_ = {};
  bool second_ = false;
};

/// Says whether it is a graph that launches.
class GraphDevice : public CpuInDisguise {
 public:
  std::optional<Launch> capture(const Launch& launch) override {
    return [this, launch](void* stream) {
      replays = true;
      launch(stream);
      replays = false;
    };
  }
  bool replays = false;
};

/// Notes what is timed.
class NotingDevice : public CpuInDisguise {
 public:
  NotingDevice(std::vector<std::string>& events, bool has_pinned)
      : events_(events), has_pinned_(has_pinned) {}

  void enqueue_copy_out(void* host, const void* device, std::size_t bytes) override {
    events_.emplace_back("copies");
    CpuInDisguise::enqueue_copy_out(host, device, bytes);
  }
  void* pinned_memory(std::size_t bytes) override {
    pinned_.resize(bytes);
    return has_pinned_ ? pinned_.data() : nullptr;
  }
  LaunchTime time_launch(const Launch& launch, double idle_ms) override {
    events_.emplace_back("launches");
    return CpuInDisguise::time_launch(launch, idle_ms);
  }

 private:
  std::vector<std::string>& events_;
  bool has_pinned_;
  std::vector<std::byte> pinned_;
};

/// Notes who asks for a host's memory.
class NotingHost : public HostShare {
 public:
  /// Its memory is taken for the first so many that try.
  NotingHost(std::vector<std::string>& events, int free_at) : events_(events), free_at_(free_at) {}

  std::shared_ptr<void> alone() override { return nullptr; }
  std::shared_ptr<void> memory_alone() override {
    events_.emplace_back("waits");
    return nullptr;
  }
  std::shared_ptr<void> try_memory_alone() override {
    const bool is_free = tries_++ >= free_at_;
    events_.emplace_back(is_free ? "free" : "taken");
    return is_free ? std::make_shared<int>(0) : nullptr;
  }
  std::shared_ptr<void> off_memory() override { return nullptr; }
  std::shared_ptr<void> all_cores() override { return nullptr; }

 private:
  std::vector<std::string>& events_;
  int free_at_, tries_ = 0;
};

}  // namespace

TEST_CASE("an honest implementation passes, with the same bits in two reruns") {
  int launches = 0;
  const auto counting = spoilt_scan("counting", [&](const Touch&) { ++launches; });
  const CaseResult result = result_of(counting);
  CHECK(result.status == Status::pass);
  CHECK(result.reason.empty());
  CHECK(launches == 3);
  REQUIRE(result.determinism);
  CHECK(result.determinism->reruns == 2);
  CHECK(result.determinism->first_difference.empty());
}

TEST_CASE("a write outside of a buffer is found, on either side of outputs, inputs and the workspace") {
  CHECK(invalid_reason(Cause::guard_band, [](const Touch& t) { *t.end("out") = 0; }) ==
        "out was written past its end, first at byte +0");
  CHECK(invalid_reason(Cause::guard_band, [](const Touch& t) { *(t.end("out") + 255) = 0; }) ==
        "out was written past its end, first at byte +1020");
  CHECK(invalid_reason(Cause::guard_band, [](const Touch& t) { *(t.at("last_state") - 2) = 0; }) ==
        "last_state was written before its start, first at byte -8");
  CHECK(invalid_reason(Cause::guard_band, [](const Touch& t) { *(t.at("last_state") - 256) = 0; }) ==
        "last_state was written before its start, first at byte -1024");
  CHECK(invalid_reason(Cause::guard_band, [](const Touch& t) { *t.end("u") = 0; }) ==
        "u was written past its end, first at byte +0");
  CHECK(invalid_reason(Cause::guard_band, [](const Touch& t) { *(t.at("A") - 1) = 0; }) ==
        "A was written before its start, first at byte -4");
  CHECK(invalid_reason(Cause::guard_band, [](const Touch& t) { *(t.workspace + 16) = 0; }) ==
        "the workspace was written past its end, first at byte +0");
  CHECK(invalid_reason(Cause::guard_band, [](const Touch& t) { *(t.workspace - 1) = 0; }) ==
        "the workspace was written before its start, first at byte -4");
}

TEST_CASE("an input that was modified is found") {
  CHECK(invalid_reason(Cause::inputs_changed, [](const Touch& t) { *t.at("u") *= 2; }) ==
        "input u was modified");
  // Two changes that a sum of the words would not see.
  CHECK(invalid_reason(Cause::inputs_changed, [](const Touch& t) {
          t.at("delta")[1] = -t.at("delta")[1];
          t.at("delta")[3] = -t.at("delta")[3];
        }) == "input delta was modified");
  CHECK(invalid_reason(Cause::inputs_changed, [](const Touch& t) {
          std::swap(t.at("B")[0], t.at("B")[20]);
        }) == "input B was modified");
}

TEST_CASE("memory overwritten comes before a wrong output, and takes the timing away") {
  const auto reason = invalid_reason(Cause::guard_band, [](const Touch& t) {
    *t.end("out") = 0;
    *t.at("out") = 1e9F;
  });
  CHECK(reason.starts_with("out was written past its end, first at byte +0; out at (0, 0, 0): expected "));
  // Only while it is timed: there are three launches before that.
  const auto late = spoilt_scan("late", [](const Touch& t) {
    if (t.launch == 7) *t.end("out") = 0;
  });
  const CaseResult result = timed(late, 10);
  CHECK(result.status == Status::invalid);
  CHECK(result.timing.empty());
}

TEST_CASE("an implementation that throws after it changed an input harms none after it") {
  const auto throwing = spoilt_scan("throwing", [](const Touch& t) {
    *t.at("u") = 17;
    throw std::runtime_error("gave up");
  });
  const CaseResult result = result_of(throwing);
  CHECK(result.status == Status::error);
  CHECK(result.cause == Cause::exception);
  CHECK(result.reason == "gave up");
}

TEST_CASE("an element that is never written is a fail that says so") {
  const auto lazy = spoilt_scan("lazy", [](const Touch& t) {
    t.at("out")[5] = std::bit_cast<float>(~std::uint32_t{0});  // as it was found
  });
  const CaseResult result = result_of(lazy);
  CHECK(result.status == Status::fail);
  CHECK(result.cause == Cause::nonfinite);
  CHECK(result.reason.find("out at (0, 0, 5): expected ") == 0);
  CHECK(result.reason.ends_with("1 elements not finite, 1 of the tensor never written"));
  const auto nan = spoilt_scan("nan", [](const Touch& t) { t.at("out")[5] = std::sqrt(-1.0F); });
  CHECK(result_of(nan).cause == Cause::nonfinite);
  CHECK(result_of(nan).reason.ends_with("1 elements not finite"));  // and was written
}

TEST_CASE("an implementation that depends on what the workspace held is a fail") {
  // Right where it is NaN, as before the first launch.
  const auto stale = spoilt_scan("stale", [](const Touch& t) {
    if (std::isfinite(t.workspace[3])) t.at("out")[2] += t.workspace[3];
  });
  const CaseResult result = result_of(stale);
  CHECK(result.status == Status::fail);
  CHECK(result.cause == Cause::tolerance);
  CHECK(result.reason.starts_with("in rerun 1: out at (0, 0, 2): expected "));
  // Right where the workspace is as the one before left it: it is other garbage at each rerun.
  float seen = 0;
  int changes = 0;
  const auto spy = spoilt_scan("spy", [&](const Touch& t) {
    if (t.launch > 1 && t.workspace[0] != seen) ++changes;
    seen = t.workspace[0];
  });
  CHECK(result_of(spy).status == Status::pass);
  CHECK(changes == 2);
}

TEST_CASE("an implementation that is wrong as soon as it is timed is a fail without a timing") {
  // The last launch of the first burst is judged, however long that is; three launches come before timing.
  const auto tiring = spoilt_scan("tiring", [](const Touch& t) {
    if (t.launch > 3) std::fill(t.at("last_state"), t.end("last_state"), 0.0F);  // of all rows
  });
  const CaseResult result = timed(tiring, 40);
  CHECK(result.status == Status::fail);
  CHECK(result.cause == Cause::tolerance);
  CHECK(result.reason.starts_with("in timed launch "));
  CHECK(result.reason.find(": last_state at (0, ") != std::string::npos);
  CHECK(result.reason.find("got 0;") != std::string::npos);
  CHECK_FALSE(result.outputs.at("last_state").passed());
  CHECK(result.timing.empty());
  // One that does nothing any more: the outputs of earlier launches are not there to be taken for its own.
  auto idle = honest();
  idle.bind = [](const Problem& p, const TensorSet& tensors, void*) -> Launch {
    return [launch = honest().bind(p, tensors, nullptr), count = 0](void* stream) mutable {
      if (++count <= 3) launch(stream);
    };
  };
  CHECK(timed(idle, 40).reason.starts_with("in timed launch "));
  // Wrong from the tenth on: perhaps in no launch of those that are judged but the one after the last.
  const auto late = spoilt_scan("late", [](const Touch& t) {
    if (t.launch >= 10) t.at("last_state")[1] = 0;
  });
  CHECK(timed(late, 40).status == Status::fail);
  CHECK(timed(late, 40).timing.empty());
  const CaseResult right = timed(honest(), 40);
  CHECK(right.status == Status::pass);
  CHECK(right.timing.at("hot").samples_ms.size() == 40);
}

TEST_CASE("launches that are timed find other inputs at the same addresses, which are back in the end") {
  const auto device = open_device(DeviceKind::cpu);
  const Case the_case = make_case(problem());
  const auto inputs = generate_inputs(the_case.problem, the_case.inputs, never_stop);
  const CaseReference reference(compute_reference(the_case.problem, views_of(inputs), never_stop));
  const DeviceInputs on_device(*device, inputs);
  const auto* const u = static_cast<const float*>(on_device.views().at("u").data);
  const std::vector<float> given(u, u + 3 * 21);
  std::set<std::vector<float>> seen;
  std::set<std::uint32_t> garbage;
  const auto spy = spoilt_scan("spy", [&](const Touch& t) {
    seen.insert({t.at("u"), t.at("u") + given.size()});
    for (int i = 0; i < 16; ++i) garbage.insert(std::bit_cast<std::uint32_t>(t.workspace[i]));
  });
  CaseResult result{.the_case = the_case, .impl = spy.name, .device = "cpu"};
  const TimingPolicy policy{.min_runs = 100, .max_runs = 100, .max_seconds = 100};
  judge_run({*device, on_device, &reference}, spy, policy, result);
  INFO(result.reason);
  CHECK(result.status == Status::pass);
  CHECK(seen.size() == 4);  // as they are, and each two of the three channels exchanged
  CHECK(garbage.size() > 10);
  CHECK(std::equal(given.begin(), given.end(), u));

  const auto giving_up = spoilt_scan("giving up", [&](const Touch& t) {
    if (t.launch > 10) throw std::runtime_error("gave up");
  });
  CHECK_THROWS(judge_run({*device, on_device, &reference}, giving_up, policy, result));
  CHECK(std::equal(given.begin(), given.end(), u));
}

TEST_CASE("where nothing can be exchanged, launches that are timed find inputs of another seed") {
  std::set<float> seen;
  int launches = 0;
  const auto run = [&](const Implementation& implementation) {
    Case the_case = make_case(scan_problem({{"seqlen", size(21)}}));
    Plan plan{.devices = {list_devices().front()}, .cases = {}};
    plan.cases.push_back({std::move(the_case), {{&implementation, 0, {}}}});
    RunnerOptions options;
    options.timing = {.min_runs = 1000, .max_runs = 1000, .max_seconds = 100};  // some 25 bursts
    options.repro = [](const Case&, const Implementation&, const DeviceInfo&) { return std::string(); };
    Collector collector;
    Runner(plan, options, collector, never_stop).run();
    return collector.results.at(0);
  };
  const CaseResult right = run(spoilt_scan("spy", [&](const Touch& t) {
    seen.insert(t.at("u")[0]);
    ++launches;
  }));
  INFO(right.reason);
  CHECK(right.status == Status::pass);
  CHECK(seen.size() == 2);
  CHECK(launches > 1000);

  std::vector<float> kept;
  const CaseResult remembered = run(spoilt_scan("remembering", [&](const Touch& t) {
    if (kept.empty()) kept.assign(t.at("out"), t.at("out") + 21);
    std::ranges::copy(kept, t.at("out"));
  }));
  CHECK(remembered.status == Status::fail);
  CHECK(remembered.reason.starts_with("in timed launch "));
}

TEST_CASE("copies are timed as soon as the host's memory is free, and after the launches at last") {
  const auto order = [](bool has_pinned, int free_at) {
    std::vector<std::string> events;
    NotingDevice device(events, has_pinned);
    NotingHost host(events, free_at);
    const Case the_case = make_case(problem());
    const auto inputs = generate_inputs(the_case.problem, the_case.inputs, never_stop);
    const DeviceInputs on_device(device, inputs);
    TransferTimer transfers(device, {}, 0, never_stop);
    CaseResult result{.the_case = the_case, .impl = "honest", .device = "cpu"};
    const CaseOnDevice on{
        .device = device, .inputs = on_device, .reference = nullptr, .transfers = &transfers, .host = &host};
    judge_run(on, honest(), TimingPolicy{.min_runs = 1000, .max_runs = 1000, .max_seconds = 100}, result);
    CHECK(result.status == Status::unverified);
    CHECK(result.transfers.has_value() == has_pinned);
    CHECK_FALSE(result.timing.empty());
    events.erase(std::unique(events.begin(), events.end()), events.end());
    return events;
  };
  using Order = std::vector<std::string>;
  CHECK(order(true, 0) == Order{"free", "copies", "launches"});
  CHECK(order(true, 2) == Order{"taken", "launches", "taken", "launches", "free", "copies", "launches"});
  const Order never_free = order(true, 1000);
  CHECK(Order(never_free.end() - 4, never_free.end()) == Order{"taken", "launches", "waits", "copies"});
  CHECK(order(false, 0) == Order{"launches"});  // nobody waits for what is not copied
}

TEST_CASE("a graph whose replay gives other outputs is not timed, and the result says so") {
  for (const bool spoils : {false, true}) {
    GraphDevice device;
    const auto racy = spoilt_scan("racy", [&](const Touch& t) {
      if (spoils && device.replays) t.at("out")[2] += 1;
    });
    const Case the_case = make_case(problem());
    const auto inputs = generate_inputs(the_case.problem, the_case.inputs, never_stop);
    const DeviceInputs on_device(device, inputs);
    CaseResult result{.the_case = the_case, .impl = racy.name, .device = "cpu"};
    judge_run({.device = device, .inputs = on_device, .reference = nullptr}, racy,
              TimingPolicy{.min_runs = 3, .max_runs = 3, .max_seconds = 100}, result);
    CHECK(result.status == Status::unverified);
    CHECK(result.timing.contains("graph") != spoils);
    CHECK(result.reason == (spoils ? "no graph time: a replay gave other outputs" : ""));
  }
}

TEST_CASE("outputs that are written after a launch has returned are invalid, and threads that never rest") {
  const auto late = spoilt_scan("late", [](const Touch& t) {
    const auto has_begun = std::make_shared<std::atomic<bool>>(false);
    std::thread([out = t.at("out"), has_begun] {
      const auto start = std::chrono::steady_clock::now();
      for (float x = 0; std::chrono::steady_clock::now() - start < std::chrono::milliseconds(300); ++x) {
        *out = x;
        *has_begun = true;
      }
    }).detach();
    while (!*has_begun) std::this_thread::yield();
  });
  const CaseResult written = run_all({&late}).front();
  CHECK(written.status == Status::invalid);
  CHECK(written.cause == Cause::late_work);
  CHECK(written.reason.starts_with("out was still written after the launch had ended"));

  const auto stop = std::make_shared<std::atomic<bool>>(false);
  const auto busy = spoilt_scan("busy", [stop](const Touch&) {
    std::thread([stop] {
      while (!*stop) continue;
    }).detach();
  });
  const CaseResult restless = run_all({&busy}).front();
  *stop = true;
  CHECK(restless.status == Status::invalid);
  CHECK(restless.cause == Cause::late_work);
  CHECK(restless.reason == "threads still compute half a second after the launch has returned");
}

TEST_CASE("an implementation that is nondeterministic fails if it claims not to be, and is recorded if not") {
  auto random = spoilt_scan("random", [](const Touch& t) {
    float& element = t.at("out")[23];
    if (t.launch % 2 == 0) element = std::nextafter(element, 1e9F);
  });
  const CaseResult claims = result_of(random);
  CHECK(claims.status == Status::fail);
  CHECK(claims.outputs.at("out").passed());
  CHECK(claims.cause == Cause::nondeterministic);
  CHECK(claims.reason.find(" out at (0, 1, 2): ") != std::string::npos);
  CHECK(claims.reason.ends_with(" in rerun 1"));

  random.deterministic = false;
  const CaseResult honest_about_it = result_of(random);
  CHECK(honest_about_it.status == Status::pass);
  CHECK_FALSE(honest_about_it.cause);
  CHECK(honest_about_it.reason.empty());
  CHECK(honest_about_it.determinism->reruns == 2);
  CHECK(honest_about_it.determinism->first_difference.starts_with("out at (0, 1, 2): "));

  auto wild = spoilt_scan("wild", [](const Touch& t) {
    if (t.launch == 3) t.at("out")[23] *= 1.01F;
  });
  wild.deterministic = false;
  const CaseResult out_of_tolerance = result_of(wild);
  CHECK(out_of_tolerance.status == Status::fail);
  CHECK(out_of_tolerance.cause == Cause::tolerance);
  CHECK(out_of_tolerance.reason.starts_with("in rerun 2: out at (0, 1, 2): expected "));
}

TEST_CASE("an implementation that is wrong on a second stream is a fail that says so") {
  StreamsDevice device;
  const Case the_case = make_case(problem());
  const auto inputs = generate_inputs(the_case.problem, the_case.inputs, never_stop);
  const CaseReference reference(compute_reference(the_case.problem, views_of(inputs), never_stop));
  const DeviceInputs on_device(device, inputs);
  void* const first_stream = device.stream();
  const auto other = spoilt_scan("other", [&](const Touch& t) {
    if (t.stream != first_stream) t.at("out")[0] = 1e9F;
  });
  const auto judge = [&](const Implementation& implementation) {
    CaseResult result{.the_case = the_case, .impl = implementation.name, .device = "cpu"};
    judge_run({device, on_device, &reference}, implementation, {}, result);
    return result;
  };
  const CaseResult result = judge(other);
  CHECK(result.status == Status::fail);
  CHECK(result.reason.starts_with("in rerun 1 on a second stream: out at (0, 0, 0): expected "));
  CHECK(device.stream() == first_stream);
  CHECK(judge(honest()).status == Status::pass);
  // Inputs that are copies on the device are watched as well.
  CHECK(judge(spoilt_scan("u", [](const Touch& t) { t.at("u")[0] = 0; })).cause == Cause::inputs_changed);
}

TEST_CASE("there are as many reruns as asked for, and fewer of what takes long") {
  RunnerOptions options;
  options.reruns = {.count = 9, .max_seconds = 1000};
  const auto tiring = spoilt_scan("tiring", [](const Touch& t) {
    if (t.launch >= 10) t.at("last_state")[1] = 0;
  });
  CHECK(result_of(tiring, options).reason.starts_with("in rerun 9: last_state at (0, 1, 0): expected "));
  options.reruns = {.count = 2, .max_seconds = 0};
  const CaseResult result = result_of(tiring, options);
  CHECK(result.status == Status::pass);
  CHECK(result.determinism->reruns == 0);
}

TEST_CASE("on a GPU too, writes outside of buffers, modified inputs and the wrong stream are found",
          "[gpu]") {
  const auto cuda = gpu_or_skip();
  if (!cuda) return;
  const auto hand = open_device(DeviceKind::cuda, cuda->index);  // writes where the implementation must not
  const auto zero = [&](void* memory) {
    hand->fill(memory, 0, 1);
    hand->synchronize();
  };
  const auto reason_of = [&](const Implementation& spoilt, Status expected) {
    const Implementation& right = find_implementation("selective_scan_fwd", "cuda-blockscan");
    const auto results = run_all({&spoilt, &right}, {}, *cuda);
    CHECK(results.at(0).status == expected);
    CHECK(results.at(1).status == Status::pass);
    CHECK(results.at(1).reason.empty());
    return results.at(0).reason;
  };
  const auto invalid = [&](const std::function<void(const Touch&)>& spoil) {
    return reason_of(spoilt_scan("spoilt", spoil, "cuda-blockscan"), Status::invalid);
  };
  CHECK(invalid([&](const Touch& t) { zero(t.end("out")); }) ==
        "out was written past its end, first at byte +0");
  CHECK(invalid([&](const Touch& t) { zero(t.at("last_state") - 1); }) ==
        "last_state was written before its start, first at byte -4");
  CHECK(invalid([&](const Touch& t) { zero(t.end("u") + 255); }) ==
        "u was written past its end, first at byte +1020");
  CHECK(invalid([&](const Touch& t) { zero(t.workspace - 256); }) ==
        "the workspace was written before its start, first at byte -1024");
  CHECK(invalid([&](const Touch& t) {
          zero(t.at("delta") + 7);
        }).starts_with("input delta was modified"));  // the kernel may have seen it

  Implementation elsewhere = find_implementation("selective_scan_fwd", "cuda-blockscan");
  elsewhere.bind = [&, bind = elsewhere.bind](const Problem& p, const TensorSet& tensors, void* workspace) {
    // The stream that it was given first, whatever it is given later.
    return Launch([launch = bind(p, tensors, workspace), stream = std::make_shared<void*>()](void* given) {
      if (*stream == nullptr) *stream = given;
      launch(*stream);
    });
  };
  CHECK(reason_of(elsewhere, Status::fail).starts_with("in rerun 1 on a second stream: "));
  const auto alternating = spoilt_scan(
      "alternating",
      [&](const Touch& t) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the kernel is done
        if (t.launch == 3) zero(t.at("out"));
      },
      "cuda-blockscan");
  CHECK(reason_of(alternating, Status::fail).find("in rerun 2") != std::string::npos);
}
