#include "bench/timer.h"

#include <algorithm>
#include <chrono>

#include "base/errors.h"

namespace ssmbench {
namespace {

using Clock = std::chrono::steady_clock;

/// Long enough for what is around a burst not to matter, short enough for turns.
constexpr double kBurstSeconds = 0.01;
constexpr std::size_t kBurstSamples = 50;
/// Runs that bring caches back to what a launch leaves there: one is not enough on an H200, where the first
/// of each burst was slower then.
constexpr int kSettlingRuns = 2;
/// Fewer once they took this long, ...
constexpr double kSettlingMs = 1;
/// ... and none of a launch that takes longer than this, which moves many times what caches hold.
constexpr double kOwnCachesMs = 10;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The policy of the ways beside hot, so that all of them together take about twice as long as hot alone.
TimingPolicy half(TimingPolicy policy) {
  policy.min_seconds /= 2;
  policy.patient_seconds /= 2;
  return policy;
}

}  // namespace

LaunchTimer::LaunchTimer(Device& device, Launch launch, const TimingPolicy& policy, double first_run_seconds,
                         const std::atomic<bool>& stop)
    : device_(device), policy_(policy), warmup_spent_(first_run_seconds), stop_(stop) {
  ways_.push_back({.name = "hot", .launch = launch, .rule = StoppingRule(policy)});
  if (device.flush_cache())
    ways_.push_back({.name = "cold", .launch = std::move(launch), .rule = StoppingRule(half(policy))});
}

void LaunchTimer::add_graph(Launch replay) {
  ways_.push_back({.name = "graph", .launch = std::move(replay), .rule = StoppingRule(half(policy_))});
}

void LaunchTimer::warm_up() {
  for (int run = 1; run < policy_.warmup && warmup_spent_ < policy_.warmup_seconds; ++run) {
    if (stop_) throw Interrupted();
    warmup_spent_ += device_.time_ms(ways_.front().launch) / 1000;
  }
  is_warm_ = true;
}

void LaunchTimer::burst(bool others_ran) {
  if (!is_warm_) warm_up();
  for (auto& way : ways_)
    if (way.stopped_by.empty()) burst(way, others_ran || ways_.size() > 1);
}

void LaunchTimer::burst(Way& way, bool others_ran) {
  if (others_ran && !way.is_cold()) settle(way);
  Burst burst{.clock = device_.read_clock()};
  const auto start = Clock::now();
  double spent = 0;
  do {
    if (stop_) throw Interrupted();
    if (way.is_cold()) device_.flush_cache();
    burst.samples_ms.push_back(device_.time_ms(way.launch));
    way.rule.add(burst.samples_ms.back());
    spent = seconds_since(start);
    way.stopped_by = way.rule.verdict(way.seconds + spent);
  } while (way.stopped_by.empty() && spent < kBurstSeconds && burst.samples_ms.size() < kBurstSamples);
  way.seconds += spent;
  burst.clock = lower_clock(burst.clock, device_.read_clock());
  way.bursts.push_back(std::move(burst));
}

void LaunchTimer::settle(const Way& way) {
  if (!way.bursts.empty() && way.bursts.back().samples_ms.back() > kOwnCachesMs) return;
  double spent_ms = 0;
  for (int run = 0; run < kSettlingRuns && spent_ms < kSettlingMs; ++run)
    spent_ms += device_.time_ms(way.launch);
}

bool LaunchTimer::is_done() const {
  return std::ranges::none_of(ways_, [](const Way& way) { return way.stopped_by.empty(); });
}

std::map<std::string, TimingStats> LaunchTimer::results() const {
  std::map<std::string, TimingStats> timing;
  std::string note;
  for (const auto& way : ways_) {
    timing[way.name] = summarize_bursts(way.bursts, note);
    timing[way.name].stopped_by = way.stopped_by;
  }
  return timing;
}

std::string LaunchTimer::note() const {
  std::string note;
  for (const auto& way : ways_) summarize_bursts(way.bursts, note);
  return note;
}

}  // namespace ssmbench
