#pragma once

#include <atomic>
#include <map>
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
    std::string stopped_by = {};

    bool is_cold() const { return name == "cold"; }
  };
  void warm_up();
  void burst(Way& way, bool others_ran);
  /// The time of one launch; whoever calls it says after_launch or end_burst.
  double run(const Way& way);
  /// Launches it without timing until caches hold what it leaves there.
  void settle(const Way& way);

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
