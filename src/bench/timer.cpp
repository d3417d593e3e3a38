#include "bench/timer.h"

#include <chrono>

#include "bench/statistics.h"
#include "model/errors.h"

namespace ssmbench {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TimingStats repeat(Device& device, const Launch& launch, const TimingPolicy& policy, bool flush,
                   const std::atomic<bool>& stop) {
  std::vector<double> samples;
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    if (stop) throw Interrupted();
    if (flush) device.flush_cache();
    samples.push_back(device.time_ms(launch));
    const auto runs = static_cast<int>(samples.size());
    const double elapsed = seconds_since(start);
    if (runs >= policy.max_runs || elapsed >= policy.max_seconds) break;
    if (runs >= policy.min_runs && elapsed >= policy.min_seconds) break;
  }
  return summarize(std::move(samples));
}

}  // namespace

std::map<std::string, TimingStats> time_launch(Device& device, const Launch& launch,
                                               const TimingPolicy& policy, double first_run_seconds,
                                               const std::atomic<bool>& stop) {
  double spent = first_run_seconds;
  for (int run = 1; run < policy.warmup && spent < policy.warmup_seconds; ++run) {
    if (stop) throw Interrupted();
    spent += device.time_ms(launch) / 1000;
  }

  std::map<std::string, TimingStats> timing;
  timing["hot"] = repeat(device, launch, policy, false, stop);
  if (device.flush_cache()) timing["cold"] = repeat(device, launch, policy, true, stop);
  return timing;
}

}  // namespace ssmbench
