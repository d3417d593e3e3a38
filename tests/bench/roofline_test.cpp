#include "bench/roofline.h"

#include <cmath>

#include "bench/statistics.h"
#include "catch.h"
#include "support/find_implementation.h"
#include "support/run_plan.h"
#include "support/scan_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

/// Round numbers per second: a GPU that takes 1 ms for 1e9 bytes, 5e8 exponentials, 1e10 multiply-adds, …
const Ceilings kGpu{.dram_bytes = 1e12,
                    .cache_bytes = 4e12,
                    .exponentials = 5e11,
                    .fmas = 1e13,
                    .tf32_flops = 1e14,
                    .f16_flops = 4e14,
                    .bf16_flops = 2e14,
                    .cache_size = 1e8};
const Ceilings kCpu{.dram_bytes = 1e10, .fmas = 1e11, .cache_size = 1e6};

Roofline floor_of_work(const Work& work, CacheState state = CacheState::hot, const Ceilings& c = kGpu) {
  return floor_of({.work = work, .input_bytes = 0.6 * work.bytes, .math = Math::bf16}, c, state);
}

bool is(const Roofline& floor, double ms, const std::string& bound) {
  INFO(floor.floor_ms << " " << floor.bound);
  CHECK(std::abs(floor.floor_ms - ms) <= 1e-12 * ms);
  CHECK(floor.bound == bound);
  return std::abs(floor.floor_ms - ms) <= 1e-12 * ms && floor.bound == bound;
}

/// A result with these medians, of cpu-scalar's small problem but with other work.
CaseResult timed(const Work& work, double hot_ms, double cold_ms = 1e9) {
  CaseResult result{.the_case = make_case(scan_problem({})), .impl = "x", .device = "cuda:0"};
  result.status = Status::pass;
  result.work = work;
  result.timing["hot"] = summarize({hot_ms});
  result.timing["cold"] = summarize({cold_ms});
  result.transfers.emplace();
  return result;
}

Implementation on(DeviceKind device) {
  Implementation implementation = find_implementation("selective_scan_fwd", "cpu-scalar");
  implementation.device = device;
  return implementation;
}

}  // namespace

TEST_CASE("the floor is the largest of what each ceiling allows") {
  CHECK(is(floor_of_work({.bytes = 1.1e9}), 1.0, "dram"));  // 1e8 of them stay in the L2
  CHECK(is(floor_of_work({.bytes = 8e7}), 0.02, "l2"));
  CHECK(is(floor_of_work({.fmas = 1e10}), 1.0, "fma"));
  CHECK(is(floor_of_work({.tensor_flops = 2e11}), 1.0, "tensor"));
  CHECK(is(floor_of_work({.bytes = 1.1e9, .fmas = 3e10, .tensor_flops = 2e11}), 3.0, "fma"));
  CHECK(is(floor_of({.work = {.tensor_flops = 4e11}, .math = Math::f16}, kGpu, CacheState::hot), 1.0,
           "tensor"));
  CHECK(is(floor_of({.work = {.tensor_flops = 1e11}, .math = Math::tf32}, kGpu, CacheState::hot), 1.0,
           "tensor"));
}

TEST_CASE("cold inputs come from memory, while outputs may stay in the cache") {
  CHECK(is(floor_of_work({.bytes = 1e8}, CacheState::cold), 0.06, "dram"));
  CHECK(is(floor_of_work({.bytes = 1e8}, CacheState::hot), 0.025, "l2"));
  CHECK(is(floor_of_work({.bytes = 1.1e9}, CacheState::cold), 1.0, "dram"));
}

TEST_CASE("multiply-adds may take the place of exponentials") {
  // x of E by the units for them, and the rest by four multiply-adds each, both at work all the time.
  const double exponentials = 1e9;
  const double fmas = 2e9;
  const Roofline floor = floor_of_work({.exponentials = exponentials, .fmas = fmas});
  CHECK(floor.bound == "mufu");
  const double seconds = floor.floor_ms / 1000;
  const double by_units = kGpu.exponentials * seconds;
  CHECK(by_units < exponentials);
  CHECK(std::abs(kFmasPerExponential * (exponentials - by_units) + fmas - kGpu.fmas * seconds) < 1);
  // Where multiply-adds take longer than all exponentials there are none to spare.
  CHECK(is(floor_of_work({.exponentials = 1e8, .fmas = 1e10}), 1.0, "fma"));
  CHECK(is(floor_of_work({.exponentials = 2e7, .fmas = 2e7}, CacheState::hot, kCpu), 1.0, "fma"));
}

TEST_CASE("what is not known bounds nothing") {
  CHECK(floor_of_work({.bytes = 1e9, .exponentials = 1, .fmas = 1, .tensor_flops = 1}, CacheState::cold, {})
            .bound.empty());
  CHECK(floor_of_work({}).bound.empty());
  CHECK(is(floor_of_work({.bytes = 2e7, .tensor_flops = 1e20}, CacheState::cold, kCpu), 1.9, "dram"));
}

TEST_CASE("a result carries its floor, what binds, and the fraction that was reached") {
  CaseResult result = timed({.bytes = 1.1e9}, 4.0);
  judge_speed(on(DeviceKind::cuda), kGpu, result);
  CHECK(result.status == Status::pass);
  REQUIRE(result.roofline.has_value());
  CHECK(result.roofline->floor_ms == 1.0);
  CHECK(result.roofline->bound == "dram");
  CHECK(result.roofline->fraction == 0.25);
}

TEST_CASE("faster than the floor is invalid, but for what calibration may be off by") {
  const auto status_at = [](DeviceKind device, double hot_ms, double cold_ms) {
    CaseResult result = timed({.bytes = 1.1e9}, hot_ms, cold_ms);
    judge_speed(on(device), kGpu, result);
    if (result.status != Status::pass) {
      CHECK(result.timing.empty());
      CHECK_FALSE(result.transfers.has_value());
      CHECK_FALSE(result.roofline.has_value());
    }
    return result.status;
  };
  CHECK(status_at(DeviceKind::cuda, 0.96, 2) == Status::pass);
  CHECK(status_at(DeviceKind::cuda, 0.94, 2) == Status::invalid);
  CHECK(status_at(DeviceKind::cuda, 2, 0.94) == Status::invalid);
  CHECK(status_at(DeviceKind::cpu, 0.51, 2) == Status::pass);
  CHECK(status_at(DeviceKind::cpu, 0.49, 2) == Status::invalid);

  CaseResult nothing = timed({.bytes = 1.1e9}, 0.002);
  judge_speed(on(DeviceKind::cuda), kGpu, nothing);
  CHECK(nothing.cause == Cause::too_fast);
  CHECK(nothing.reason ==
        "faster than the device allows: hot 0.002 ms, but dram alone takes at least 1 ms; does every launch "
        "compute?");
}

TEST_CASE("inputs that a launch may leave alone need not come from memory") {
  const Implementation step = find_implementation("selective_state_update", "cpu-step");
  Implementation on_gpu = step;
  on_gpu.device = DeviceKind::cuda;
  const Problem few_of_many(*find_op("selective_state_update"), {{"form", std::string("mamba1")},
                                                                 {"batch", std::int64_t{1}},
                                                                 {"dim", std::int64_t{1024}},
                                                                 {"dstate", std::int64_t{16}},
                                                                 {"slots", std::int64_t{4096}},
                                                                 {"store", std::string("last")},
                                                                 {"dtype", std::string("f32")}});
  CaseResult result{.the_case = make_case(few_of_many), .impl = "x", .device = "cuda:0"};
  result.status = Status::pass;
  result.work = least_work(step, few_of_many);
  result.timing["hot"] = summarize({0.01});
  result.timing["cold"] = summarize({0.01});  // all slots, 268 MB, would take 0.268 ms
  judge_speed(on_gpu, kGpu, result);
  CHECK(result.status == Status::pass);
  result.timing["cold"] = summarize({0.00001});  // less than its own slot takes
  judge_speed(on_gpu, kGpu, result);
  CHECK(result.status == Status::invalid);
}

TEST_CASE("a team's floor has its links, and the shortest exchange besides") {
  Ceilings team{.dram_bytes = 2e12, .link_bytes = 1e11, .link_seconds = 1e-5};
  const Launched few{.work = {.bytes = 2e9}, .wire_bytes = 1e7};
  CHECK(floor_of(few, team, CacheState::hot).bound == "dram");
  CHECK(floor_of(few, team, CacheState::hot).floor_ms == Approx(1.01));
  const Launched many{.work = {.bytes = 2e9}, .wire_bytes = 1e9};
  CHECK(floor_of(many, team, CacheState::hot).bound == "link");
  CHECK(floor_of(many, team, CacheState::hot).floor_ms == Approx(10.01));
  const Launched none{.work = {.bytes = 2e9}};
  CHECK(floor_of(none, team, CacheState::hot).floor_ms == 1);
}

TEST_CASE("a result without timings is left alone") {
  CaseResult result = timed({.bytes = 1.1e9}, 1);
  result.timing.clear();
  result.status = Status::fail;
  judge_speed(on(DeviceKind::cuda), kGpu, result);
  CHECK(result.status == Status::fail);
  CHECK_FALSE(result.roofline.has_value());
}

TEST_CASE("the runner judges by the ceilings of the device that a job is on") {
  Plan plan{.devices = {list_devices().front()}, .cases = {}};
  const Implementation& honest = find_implementation("selective_scan_fwd", "cpu-scalar");
  plan.cases.push_back({make_case(scan_problem({})), {{&honest, 0, {}}}});
  int measured = 0;
  const auto status_with = [&](double fmas_per_s, double measured_again = 0) {
    RunnerOptions options;
    if (measured_again > 0)
      options.measure_again = [&, measured_again](const DeviceInfo& device, const Ceilings& known) {
        CHECK(device.kind == DeviceKind::cpu);
        CHECK(known.fmas == fmas_per_s);
        ++measured;
        return Ceilings{.fmas = measured_again};
      };
    options.timing.warmup = 0;
    options.timing.min_runs = options.timing.max_runs = 1;
    options.reruns.count = 0;
    options.ceilings["cpu"].fmas = fmas_per_s;
    options.repro = [](const Case&, const Implementation&, const DeviceInfo&) { return std::string(); };
    Collector collector;
    const std::atomic<bool> never{false};
    Runner(plan, options, collector, never).run();
    return collector.results.at(0).status;
  };
  CHECK(status_with(1e18) == Status::pass);
  CHECK(status_with(1e-3) == Status::invalid);
  // What was measured while the machine was busy is measured again before anything is called too fast.
  CHECK(status_with(1e18, 1e19) == Status::pass);
  CHECK(measured == 0);
  CHECK(status_with(1e-3, 1e18) == Status::pass);
  CHECK(measured == 1);
  CHECK(status_with(1e-3, 1e-3) == Status::invalid);
}
