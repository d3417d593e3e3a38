#include "gate/median_ratio.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "bench/statistics.h"
#include "gate/students_t.h"

namespace ssmbench {
namespace {

/// A variance and how well it is known.
struct Variance {
  double value = 0, freedom = 1;
};

/// The sum of independent ones, with Welch's and Satterthwaite's degrees of freedom.
Variance sum_of(const std::vector<Variance>& parts) {
  Variance sum;
  double squares = 0;
  for (const auto& [value, freedom] : parts) {
    sum.value += value;
    squares += value * value / freedom;
  }
  if (squares > 0) sum.freedom = sum.value * sum.value / squares;
  return sum;
}

/// By how much the correlation of neighbours in time makes the variance of their median larger: that of
/// their signs about it, weighted as Newey and West do. Correlation that makes it smaller is not relied on.
double variance_factor(const std::vector<double>& samples, double median) {
  const std::size_t n = samples.size();
  std::vector<double> signs(n);
  for (std::size_t i = 0; i < n; ++i) signs[i] = samples[i] > median ? 1 : samples[i] < median ? -1 : 0;
  const auto covariance = [&](std::size_t apart) {
    double sum = 0;
    for (std::size_t i = apart; i < n; ++i) sum += signs[i] * signs[i - apart];
    return sum;
  };
  const double variance = covariance(0);
  if (variance == 0) return 1;
  const auto farthest = static_cast<std::size_t>(std::ceil(std::cbrt(static_cast<double>(n))));
  double factor = 1;
  for (std::size_t apart = 1; apart <= farthest && apart < n; ++apart) {
    const double weight = 1 - static_cast<double>(apart) / static_cast<double>(farthest + 1);
    factor += 2 * weight * covariance(apart) / variance;
  }
  return std::max(factor, 1.0);
}

/// The variance of the logarithm of the median of what one process sampled.
Variance variance_of_median(const std::vector<double>& samples, const std::vector<double>& ascending) {
  constexpr double kDeviations = 1.96;
  const auto n = static_cast<double>(samples.size());
  if (samples.size() < 2) return {};
  const double factor = variance_factor(samples, quantile(ascending, 0.5));
  const double deviation = std::sqrt(n * factor) / 2;  // of the number of samples below the median
  const double ranks = std::min(kDeviations * deviation, (n - 1) / 2);
  const auto at = [&](double rank) { return quantile(ascending, rank / (n - 1)); };
  const double distance = std::log(at((n - 1) / 2 + ranks) / at((n - 1) / 2 - ranks));
  const double error = distance / (2 * ranks / deviation);
  return {error * error, std::max(n / factor - 1, 1.0)};
}

/// One side of a comparison, in logarithms.
struct Side {
  explicit Side(const ProcessSamples& processes) {
    for (const auto& samples : processes) {
      std::vector<double> ascending = samples;
      std::ranges::sort(ascending);
      medians.push_back(std::log(quantile(ascending, 0.5)));
      variances.push_back(variance_of_median(samples, ascending));
    }
    median = std::accumulate(medians.begin(), medians.end(), 0.0) / count();
    for (auto& variance : variances) variance.value /= count() * count();
  }
  double count() const { return static_cast<double>(medians.size()); }
  double sum_of_squares() const {
    double sum = 0;
    for (const double value : medians) sum += (value - median) * (value - median);
    return sum;
  }

  std::vector<double> medians;
  std::vector<Variance> variances;  ///< what each adds to that of their mean
  double median = 0;
};

}  // namespace

RatioInterval ratio_of_medians(const ProcessSamples& before, const ProcessSamples& after, double confidence) {
  const Side of_before(before);
  const Side of_after(after);
  std::vector<Variance> parts = of_before.variances;
  parts.insert(parts.end(), of_after.variances.begin(), of_after.variances.end());
  const double freedom = of_before.count() + of_after.count() - 2;
  if (freedom > 0)
    parts.push_back({(of_before.sum_of_squares() + of_after.sum_of_squares()) / freedom *
                         (1 / of_before.count() + 1 / of_after.count()),
                     freedom});
  const Variance variance = sum_of(parts);
  RatioInterval interval{.ratio = median_of_processes(after) / median_of_processes(before),
                         .covers_processes = freedom > 0,
                         .standard_error = std::sqrt(variance.value),
                         .freedom = variance.freedom};
  const double factor =
      std::exp(students_t_quantile(1 - confidence, interval.freedom) * interval.standard_error);
  interval.low = interval.ratio / factor;
  interval.high = interval.ratio * factor;
  return interval;
}

double chance_of(const RatioInterval& interval, double bound) {
  const double beyond = std::abs(std::log(interval.ratio)) - std::log(bound);
  if (beyond <= 0) return 1;
  return students_t_outside(beyond / interval.standard_error, interval.freedom);
}

std::vector<double> corrected_by_holm(const std::vector<double>& p_values) {
  std::vector<std::size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return p_values[i]; });
  std::vector<double> corrected(p_values.size());
  double largest = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    largest = std::max(largest, static_cast<double>(order.size() - i) * p_values[order[i]]);
    corrected[order[i]] = std::min(largest, 1.0);
  }
  return corrected;
}

double median_of_processes(const ProcessSamples& processes) {
  const auto median = [](std::vector<double> samples) {
    std::ranges::sort(samples);
    return quantile(samples, 0.5);
  };
  if (processes.size() == 1) return median(processes.front());  // exactly
  double sum = 0;
  for (const auto& samples : processes) sum += std::log(median(samples));
  return std::exp(sum / static_cast<double>(processes.size()));
}

std::size_t sample_count(const ProcessSamples& processes) {
  std::size_t count = 0;
  for (const auto& samples : processes) count += samples.size();
  return count;
}

std::size_t fewest_samples(double confidence) {
  return static_cast<std::size_t>(std::ceil(1 - std::log2(1 - confidence)));
}

}  // namespace ssmbench
