#pragma once

#include <atomic>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "bench/bursts.h"
#include "bench/stopping_rule.h"
#include "device/device.h"
#include "record/result.h"

namespace ssmbench {

/// What is done around launches that are timed, warm-up included, outside of their time. Does nothing by
/// itself.
class LaunchWatch {
 public:
  virtual ~LaunchWatch() = default;
  LaunchWatch() = default;
  LaunchWatch(const LaunchWatch&) = delete;
  LaunchWatch& operator=(const LaunchWatch&) = delete;
  LaunchWatch(LaunchWatch&&) = delete;
  LaunchWatch& operator=(LaunchWatch&&) = delete;

  virtual void begin_burst() {}
  virtual void before_launch() {}
  /// As soon as the clock has stopped.
  virtual void launch_returned() {}
  virtual void after_launch() {}
  /// In place of after_launch, after the last launch of a burst.
  virtual void end_burst() {}
};

/// Times one launch in up to three ways:
///   "hot"    back to back: inputs and outputs wherever the run before left them;
///   "cold"   with the last-level cache flushed before each run, where the device can;
///   "graph"  back to back as a graph's replay, where there is one.
/// Samples are taken in bursts of about ten milliseconds, so that those of several launches can take turns.
/// A burst after something else ran starts with a run or two that are not timed: what is hot is hot by its
/// own doing. How long a burst is, is drawn at random, so that no launch can know to be the last of one.
/// Before each timed launch the device is idle for twice as long as the host took to enqueue the longest of
/// those before that were not timed, within limits; what ran into time of the host all the same is counted.
class LaunchTimer {
 public:
  /// `first_run_seconds`: what it took when it ran before, which counts as warm-up.
  LaunchTimer(Device& device, Launch launch, const TimingPolicy& policy, double first_run_seconds,
              const std::atomic<bool>& stop);
  /// Times this, too, under "graph".
  void add_graph(Launch replay);
  /// `watch` has to live as long.
  void watch(LaunchWatch& watch) { watch_ = &watch; }

  /// A burst of each way that has not enough samples yet; warms up first where that was not done. Throws
  /// what the launch throws, and Interrupted on `stop`.
  void burst(bool others_ran);
  bool is_done() const;

  std::map<std::string, TimingStats> results() const;
  /// What has to be known about them beside the numbers; empty when nothing has.
  std::string note() const;

 private:
  struct Way {
    std::string name;
    Launch launch;
    StoppingRule rule;
    std::vector<Burst> bursts = {};
    double seconds = 0;
    double latest_ms = 0;  ///< the latest sample
    /// The longest that launches took to enqueue that were not timed, or else the first that was.
    std::optional<double> enqueue_ms = {};
    std::string stopped_by = {};

    bool is_cold() const { return name == "cold"; }
  };
  void warm_up();
  void burst(Way& way, bool others_ran);
  /// One launch of `way` after the device was idle for so long; whoever calls it says after_launch or
  /// end_burst.
  LaunchTime run(const Way& way, double idle_ms);
  /// One launch that is no sample; what it took, ms.
  double run_untimed(Way& way);
  /// One sample.
  void take_sample(Way& way, Burst& burst);
  /// How long the device has to be idle before a launch of `way` for that to be in the queue in time.
  double idle_ms(const Way& way) const;
  /// Launches it without timing until caches hold what it leaves there.
  void settle(Way& way);

  Device& device_;
  TimingPolicy policy_;
  double warmup_spent_;
  bool is_warm_ = false;
  const std::atomic<bool>& stop_;
  std::vector<Way> ways_;
  LaunchWatch* watch_;
  std::mt19937_64 random_{std::random_device()()};
};

}  // namespace ssmbench
