#include "bench/bursts.h"

#include <algorithm>

#include "bench/statistics.h"

namespace ssmbench {
namespace {

constexpr double kClearlyBelow = 0.95;

/// Nothing where no burst knows its clock.
std::optional<double> median_clock(const std::vector<Burst>& bursts, const std::vector<bool>& left_out) {
  std::vector<double> clocks;
  for (std::size_t i = 0; i < bursts.size(); ++i)
    if (!left_out[i] && bursts[i].clock) clocks.push_back(bursts[i].clock->mhz);
  if (clocks.empty()) return {};
  std::ranges::sort(clocks);
  return quantile(clocks, 0.5);
}

}  // namespace

std::optional<ClockReading> lower_clock(const std::optional<ClockReading>& a,
                                        const std::optional<ClockReading>& b) {
  if (!a || !b) return a ? a : b;
  return ClockReading{.mhz = std::min(a->mhz, b->mhz), .held_down = a->held_down || b->held_down};
}

std::vector<bool> throttled(const std::vector<Burst>& bursts) {
  std::vector<bool> found(bursts.size(), false);
  const auto usual = median_clock(bursts, found);
  for (std::size_t i = 0; i < bursts.size(); ++i)
    if (const auto& clock = bursts[i].clock)
      found[i] = clock->held_down || clock->mhz < kClearlyBelow * *usual;
  return found;
}

TimingStats summarize_bursts(const std::vector<Burst>& bursts, std::string& note) {
  std::vector<bool> left_out = throttled(bursts);
  if (std::ranges::find(left_out, false) == left_out.end()) {
    note = "the device held its clock down all the time";
    left_out.assign(bursts.size(), false);
  }
  std::vector<double> samples;
  int lost = 0;
  int dry = 0;
  for (std::size_t i = 0; i < bursts.size(); ++i) {
    const auto& of_burst = bursts[i].samples_ms;
    if (left_out[i]) {
      lost += static_cast<int>(of_burst.size());
      continue;
    }
    samples.insert(samples.end(), of_burst.begin(), of_burst.end());
    dry += bursts[i].queue_ran_dry;
  }
  TimingStats stats = summarize(std::move(samples));
  stats.throttled = lost;
  stats.queue_ran_dry = dry;
  stats.clock_mhz = median_clock(bursts, left_out);
  return stats;
}

}  // namespace ssmbench
