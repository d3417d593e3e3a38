#pragma once

#include <atomic>
#include <map>
#include <string>

#include "device/device.h"
#include "model/result.h"

namespace ssmbench {

/// When to stop repeating a launch. Warm-up runs are not timed: `warmup` of them, fewer once `warmup_seconds`
/// were spent. Then at least `min_runs` and for at least `min_seconds`, but no further run is started after
/// `max_seconds` or `max_runs`.
struct TimingPolicy {
  int warmup = 3;
  double warmup_seconds = 0.2;
  int min_runs = 10;
  int max_runs = 1000;
  double min_seconds = 0.2;
  double max_seconds = 2;
};

/// Times a launch that ran once before and took `first_run_seconds` then, which counts as warm-up. "hot":
/// back to back, inputs wherever the last run left them; "cold": with the last-level cache flushed before
/// each run, where the device can. Throws Interrupted on `stop`.
std::map<std::string, TimingStats> time_launch(Device& device, const Launch& launch,
                                               const TimingPolicy& policy, double first_run_seconds,
                                               const std::atomic<bool>& stop);

}  // namespace ssmbench
