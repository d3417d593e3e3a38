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

TimingStats summarize(std::vector<double> samples_ms) {
  std::vector<double> sorted = samples_ms;
  std::ranges::sort(sorted);
  const auto n = static_cast<double>(sorted.size());
  const double mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) / n;
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
          .samples_ms = std::move(samples_ms)};
}

}  // namespace ssmbench
