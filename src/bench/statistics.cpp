#include "bench/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ssmbench {

double quantile(const std::vector<double>& ascending, double q) {
  const double position = q * static_cast<double>(ascending.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, ascending.size() - 1);
  return std::lerp(ascending[below], ascending[above], position - static_cast<double>(below));
}

std::vector<bool> find_outliers(const std::vector<double>& samples) {
  // What a median and a mean distance have to be multiplied by to estimate a normal distribution's stdev.
  constexpr double kOfMedian = 1.482602;
  constexpr double kOfMean = 1.253314;
  constexpr double kFar = 3.5;
  std::vector<double> sorted = samples;
  std::ranges::sort(sorted);
  const double median = quantile(sorted, 0.5);
  for (double& sample : sorted) sample = std::abs(sample - median);
  std::ranges::sort(sorted);
  double scale = kOfMedian * quantile(sorted, 0.5);
  if (scale == 0)
    scale = kOfMean * std::accumulate(sorted.begin(), sorted.end(), 0.0) / static_cast<double>(sorted.size());
  std::vector<bool> found;
  for (const double sample : samples) found.push_back(std::abs(sample - median) > kFar * scale);
  return found;
}

TimingStats summarize(std::vector<double> samples_ms) {
  std::vector<double> sorted = samples_ms;
  std::ranges::sort(sorted);
  const auto n = static_cast<double>(sorted.size());
  const double mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) / n;
  const auto outliers = std::ranges::count(find_outliers(samples_ms), true);
  double squares = 0;
  for (const double sample : sorted) squares += (sample - mean) * (sample - mean);
  return {.median_ms = quantile(sorted, 0.5),
          .mean_ms = mean,
          .stdev_ms = sorted.size() > 1 ? std::sqrt(squares / (n - 1)) : 0,
          .min_ms = sorted.front(),
          .max_ms = sorted.back(),
          .p5_ms = quantile(sorted, 0.05),
          .p95_ms = quantile(sorted, 0.95),
          .p99_ms = quantile(sorted, 0.99),
          .samples_ms = std::move(samples_ms),
          .outliers = static_cast<int>(outliers)};
}

}  // namespace ssmbench
