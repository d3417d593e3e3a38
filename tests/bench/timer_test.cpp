// Timing on a device whose launches take as long as the test says.

#include "bench/timer.h"

#include <limits>

#include "base/errors.h"
#include "catch.h"
#include "support/cpu_in_disguise.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

class FakeDevice : public CpuInDisguise {
 public:
  explicit FakeDevice(bool has_cache) : has_cache_(has_cache) {}
  LaunchTime time_launch(const Launch& launch, double idle_ms) override {
    launch(nullptr);
    idle.push_back(idle_ms);
    const double host = enqueueing.empty() ? 0 : enqueueing.at((idle.size() - 1) % enqueueing.size());
    return {.ms = ms, .enqueue_ms = host, .queue_ran_dry = host > idle_ms};
  }
  bool flush_cache() override {
    flushes += has_cache_ ? 1 : 0;
    return has_cache_;
  }
  std::optional<ClockReading> read_clock() override {
    if (clocks.empty()) return {};
    return clocks.at(readings++ % clocks.size());
  }

  double ms = 2.5;                 ///< that a launch takes
  std::vector<double> enqueueing;  ///< that it takes the host, ms, one after the other
  std::vector<double> idle;        ///< before each launch, ms
  int flushes = 0;
  std::vector<ClockReading> clocks;  ///< one after the other
  std::size_t readings = 0;

 private:
  bool has_cache_;
};

const std::atomic<bool> kNever{false};
constexpr double kLong = std::numeric_limits<double>::infinity();

TimingPolicy exactly(int runs, int warmup = 1) {
  return {
      .warmup = warmup, .warmup_seconds = kLong, .min_runs = runs, .max_runs = runs, .max_seconds = kLong};
}

/// All bursts of one launch.
LaunchTimer time_launch(Device& device, const Launch& launch, const TimingPolicy& policy,
                        double first_run_seconds, const std::atomic<bool>& stop = kNever) {
  LaunchTimer timer(device, launch, policy, first_run_seconds, stop);
  while (!timer.is_done()) timer.burst(false);
  return timer;
}

Burst burst_at(double mhz, std::vector<double> samples, bool held_down = false) {
  return {.samples_ms = std::move(samples), .clock = ClockReading{.mhz = mhz, .held_down = held_down}};
}

}  // namespace

TEST_CASE("warm-up launches are not samples, and the first run counts as one") {
  FakeDevice device(false);
  int launches = 0;
  const auto timing = time_launch(
                          device, [&](void*) { ++launches; }, exactly(6, 4), 0)
                          .results();
  CHECK(launches == 3 + 6);
  CHECK(timing.at("hot").samples_ms == std::vector<double>(6, 2.5));
  CHECK(timing.at("hot").stopped_by == "runs");
  CHECK_FALSE(timing.at("hot").clock_mhz);
  CHECK(timing.size() == 1);
}

TEST_CASE("a first run that took long is warm-up enough") {
  FakeDevice device(false);
  int launches = 0;
  const TimingPolicy policy{.warmup = 4, .warmup_seconds = 0.2, .min_runs = 1, .max_runs = 1};
  time_launch(
      device, [&](void*) { ++launches; }, policy, 0.3);
  CHECK(launches == 1);
}

TEST_CASE("with a cache to flush, cold runs each follow a flush") {
  FakeDevice device(true);
  const auto timing = time_launch(
                          device, [](void*) {}, exactly(3), 0)
                          .results();
  CHECK(timing.at("cold").samples_ms.size() == 3);
  CHECK(device.flushes >= 3);
}

TEST_CASE("a graph is timed beside the launch, each as often") {
  FakeDevice device(false);
  int launches = 0;
  int replays = 0;
  LaunchTimer timer(
      device, [&](void*) { ++launches; }, exactly(7), 0, kNever);
  timer.add_graph([&](void*) { ++replays; });
  int bursts = 0;
  for (; !timer.is_done(); ++bursts) timer.burst(false);
  CHECK(timer.results().at("graph").samples_ms.size() == 7);
  for (const int count : {launches, replays}) {  // what ran before a burst was the other way
    CHECK(count >= 7 + 1);
    CHECK(count <= 7 + bursts);
  }
}

TEST_CASE("a burst after something else ran starts with launches that are not timed, fewer of what is slow") {
  for (const auto& [ms, untimed] : {std::pair{0.01, 2}, {2.5, 1}}) {
    FakeDevice device(false);
    device.ms = ms;
    int launches = 0;
    LaunchTimer timer(
        device, [&](void*) { ++launches; }, exactly(120), 0, kNever);
    int bursts = 0;
    for (; !timer.is_done(); ++bursts) timer.burst(true);
    CHECK(bursts >= 2);  // of at most 75
    CHECK(launches == 120 + untimed * bursts);
    CHECK(timer.results().at("hot").samples_ms.size() == 120);
  }
  FakeDevice device(false);
  device.ms = 11;  // longer than anything that ran before can matter, once that is known
  int launches = 0;
  LaunchTimer timer(
      device, [&](void*) { ++launches; }, exactly(120), 0, kNever);
  while (!timer.is_done()) timer.burst(true);
  CHECK(launches == 121);
}

TEST_CASE("the device idles for twice the longest launch that was not timed, within limits") {
  struct Expected {
    std::vector<double> enqueueing;
    double idle_ms;
  };
  for (const auto& [enqueueing, idle_ms] :
       {Expected{{0.7, 1, 0.2, 0.5, 0.5, 0.5}, 2}, {{0.001}, 0.05}, {{15}, 20}}) {
    FakeDevice device(false);
    device.enqueueing = enqueueing;
    const auto timing = time_launch(
                            device, [](void*) {}, exactly(3, 4), 0)
                            .results();
    CHECK(device.idle == std::vector<double>{0.05, 0.05, 0.05, idle_ms, idle_ms, idle_ms});
    CHECK(timing.at("hot").queue_ran_dry == 0);
  }
}

TEST_CASE("without a launch that was not timed the device idles longest before the first") {
  FakeDevice device(false);
  device.enqueueing = {3};
  time_launch(
      device, [](void*) {}, exactly(3), 0);
  CHECK(device.idle == std::vector<double>{20, 6, 6});
}

TEST_CASE("cold launches find the queue as long as hot ones") {
  FakeDevice device(true);
  device.enqueueing = {3};
  time_launch(
      device, [](void*) {}, exactly(1), 0);
  CHECK(device.idle == std::vector<double>{0.05, 6, 6});
}

TEST_CASE("a graph has a queue of its own to fill") {
  FakeDevice device(false);
  LaunchTimer timer(
      device, [&](void*) { device.enqueueing = {5}; }, exactly(1), 0, kNever);
  timer.add_graph([&](void*) { device.enqueueing = {0.4}; });
  while (!timer.is_done()) timer.burst(false);
  CHECK(device.idle == std::vector<double>{0.05, 10, 0.05, 0.8});
}

TEST_CASE("samples for which the queue ran dry are counted, and a note says so where they matter") {
  FakeDevice device(false);
  device.enqueueing = {25};  // longer than the device ever idles
  const LaunchTimer slow = time_launch(
      device, [](void*) {}, exactly(40, 3), 0);
  CHECK(slow.results().at("hot").queue_ran_dry == 40);
  CHECK(slow.note() == "the queue ran dry, so times may hold time of the host: hot in 40 of 40 launches");

  FakeDevice once(false);
  once.enqueueing.assign(43, 0.1);
  once.enqueueing[20] = 1;
  const LaunchTimer fine = time_launch(
      once, [](void*) {}, exactly(40, 3), 0);
  CHECK(fine.results().at("hot").queue_ran_dry == 1);
  CHECK(fine.note().empty());
}

TEST_CASE("timing stops when asked to") {
  FakeDevice device(false);
  const std::atomic<bool> stop{true};
  CHECK_THROWS_AS(time_launch(
                      device, [](void*) {}, {}, 0, stop),
                  Interrupted);
}

TEST_CASE("samples of bursts with a lower clock, or one held down, are left out and counted") {
  std::string note;
  const auto stats = summarize_bursts({burst_at(1980, {1, 1}), burst_at(1500, {7, 7, 7}), burst_at(1965, {2}),
                                       burst_at(1980, {9}, true), burst_at(1980, {1})},
                                      note);
  CHECK(stats.samples_ms == std::vector<double>{1, 1, 2, 1});
  CHECK(stats.throttled == 4);
  CHECK(stats.clock_mhz == 1980);
  CHECK(note.empty());
}

TEST_CASE("when all samples are throttled they are kept, and a note says so") {
  std::string note;
  const auto stats = summarize_bursts({burst_at(900, {3}, true), burst_at(900, {4}, true)}, note);
  CHECK(stats.samples_ms == std::vector<double>{3, 4});
  CHECK(stats.throttled == 0);
  CHECK(stats.clock_mhz == 900);
  CHECK(note == "the device held its clock down all the time");
}

TEST_CASE("the clock is read before and after each burst, and the lower reading counts") {
  for (const std::size_t low : {2, 3}) {  // before and after the second burst
    FakeDevice device(false);
    device.clocks.assign(1000, {1980});
    device.clocks[low].mhz = 1400;
    const auto stats = time_launch(
                           device, [](void*) {}, exactly(220), 0)
                           .results()
                           .at("hot");
    CHECK(device.readings >= 6);  // three bursts at least, of at most 75 samples each
    CHECK(stats.throttled > 0);
    CHECK(stats.throttled + static_cast<int>(stats.samples_ms.size()) == 220);
    CHECK(stats.clock_mhz == 1980);
  }
}
