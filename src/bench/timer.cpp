#include "bench/timer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/errors.h"

namespace ssmbench {
namespace {

using Clock = std::chrono::steady_clock;

/// Long enough for what is around a burst not to matter, short enough for turns. Each burst is a share of it
/// that is drawn at random from nothing to all: were there a least length, launches before that would know
/// that nobody looks.
constexpr double kBurstSeconds = 0.02;
constexpr double kBurstSamples = 75;
/// Runs that bring caches back to what a launch leaves there: one is not enough on an H200, where the first
/// of each burst was slower then.
constexpr int kSettlingRuns = 2;
/// Fewer once they took this long, ...
constexpr double kSettlingMs = 1;
/// ... and none of a launch that takes longer than this, which moves many times what caches hold.
constexpr double kOwnCachesMs = 10;

/// How long the device is idle before a launch, so that all of it, and both events, are in the queue when it
/// gets there. Without that the time of a kernel of a few microseconds is the time it takes to launch it
/// (H200: 6 µs for an empty kernel, 2.8 µs if it was queued).
constexpr double kLeastIdleMs = 0.05;
constexpr double kMostIdleMs = 20;
constexpr double kIdlePerEnqueueing = 2;

/// A larger share of samples that may hold time of the host is worth a note: percentiles hold it then.
constexpr double kDryShare = 0.05;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

LaunchWatch& no_watch() {
  static LaunchWatch watch;
  return watch;
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
    : device_(device), policy_(policy), warmup_spent_(first_run_seconds), stop_(stop), watch_(&no_watch()) {
  ways_.push_back({.name = "hot", .launch = launch, .rule = StoppingRule(policy)});
  if (device.flush_cache())
    ways_.push_back({.name = "cold", .launch = std::move(launch), .rule = StoppingRule(half(policy))});
}

void LaunchTimer::add_graph(Launch replay) {
  ways_.push_back({.name = "graph", .launch = std::move(replay), .rule = StoppingRule(half(policy_))});
}

void LaunchTimer::warm_up() {
  for (int done = 1; done < policy_.warmup && warmup_spent_ < policy_.warmup_seconds; ++done) {
    if (stop_) throw Interrupted();
    warmup_spent_ += run_untimed(ways_.front()) / 1000;
  }
  is_warm_ = true;
}

LaunchTime LaunchTimer::run(const Way& way, double idle_ms) {
  watch_->before_launch();
  if (way.is_cold()) device_.flush_cache();
  const LaunchTime time = device_.time_launch(way.launch, idle_ms);
  watch_->launch_returned();
  return time;
}

double LaunchTimer::run_untimed(Way& way) {
  // Idle for short: a launch that waits for the device is to be seen with what it takes itself.
  const LaunchTime time = run(way, kLeastIdleMs);
  watch_->after_launch();
  way.enqueue_ms = std::max(way.enqueue_ms.value_or(0), time.enqueue_ms);
  return time.ms;
}

double LaunchTimer::idle_ms(const Way& way) const {
  const auto& known = way.is_cold() ? ways_.front().enqueue_ms : way.enqueue_ms;  // the same launch
  return known ? std::clamp(kIdlePerEnqueueing * *known, kLeastIdleMs, kMostIdleMs) : kMostIdleMs;
}

void LaunchTimer::take_sample(Way& way, Burst& burst) {
  const LaunchTime time = run(way, idle_ms(way));
  if (!way.enqueue_ms) way.enqueue_ms = time.enqueue_ms;
  way.latest_ms = time.ms;
  way.rule.add(time.ms);
  burst.samples_ms.push_back(time.ms);
  burst.queue_ran_dry += time.queue_ran_dry ? 1 : 0;
}

void LaunchTimer::burst(bool others_ran) {
  if (!is_warm_) warm_up();
  for (auto& way : ways_)
    if (way.stopped_by.empty()) burst(way, others_ran || ways_.size() > 1);
}

void LaunchTimer::burst(Way& way, bool others_ran) {
  const double length = std::uniform_real_distribution<double>(0, 1)(random_);
  watch_->begin_burst();
  // A watch reads outputs between bursts; that is little beside what a longer launch moves.
  const bool was_watched = watch_ != &no_watch() && way.latest_ms < kSettlingMs;
  if ((others_ran || was_watched) && !way.is_cold()) settle(way);
  Burst burst{.clock = device_.read_clock()};
  const auto start = Clock::now();
  bool is_last = false;
  for (double spent = 0; !is_last;) {
    if (stop_) throw Interrupted();
    // Known before it starts: one that is interrupted for long would else be the last one more often.
    is_last = spent + way.latest_ms / 1000 >= length * kBurstSeconds ||
              static_cast<double>(burst.samples_ms.size() + 1) >= length * kBurstSamples;
    take_sample(way, burst);
    spent = seconds_since(start);
    way.stopped_by = way.rule.verdict(way.seconds + spent);
    is_last = is_last || !way.stopped_by.empty();
    if (is_last)
      way.seconds += spent;
    else
      watch_->after_launch();
  }
  watch_->end_burst();
  burst.clock = lower_clock(burst.clock, device_.read_clock());
  way.bursts.push_back(std::move(burst));
}

void LaunchTimer::settle(Way& way) {
  if (way.latest_ms > kOwnCachesMs) return;
  double spent_ms = 0;
  for (int done = 0; done < kSettlingRuns && spent_ms < kSettlingMs; ++done) spent_ms += run_untimed(way);
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
  std::string dry;
  for (const auto& way : ways_) {
    const TimingStats stats = summarize_bursts(way.bursts, note);
    const std::size_t samples = stats.samples_ms.size();
    if (stats.queue_ran_dry > kDryShare * static_cast<double>(samples))
      dry += fmt::format("{}{} in {} of {} launches", dry.empty() ? "" : ", ", way.name, stats.queue_ran_dry,
                         samples);
  }
  if (dry.empty()) return note;
  return fmt::format("{}{}the queue ran dry, so times may hold time of the host: {}", note,
                     note.empty() ? "" : "; ", dry);
}

}  // namespace ssmbench
