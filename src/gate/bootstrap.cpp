#include "gate/bootstrap.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>

#include "base/random.h"
#include "bench/statistics.h"

namespace ssmbench {
namespace {

/// Medians of sets that are drawn from samples in blocks.
class Resampler {
 public:
  Resampler(const std::vector<double>& samples, std::size_t block, const std::string& name)
      : sorted_(samples),
        rank_(samples.size()),
        drawn_(samples.size()),
        block_(block > 0
                   ? block
                   : static_cast<std::size_t>(std::ceil(std::cbrt(static_cast<double>(samples.size()))))),
        starts_((samples.size() + block_ - 1) / block_),
        stream_(0, name) {
    std::vector<std::size_t> order(samples.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return samples[i]; });
    for (std::size_t rank = 0; rank < order.size(); ++rank) rank_[order[rank]] = rank;
    std::ranges::sort(sorted_);
  }

  double median() const { return quantile(sorted_, 0.5); }

  /// The median of the next set: counts how often each sample is drawn, and walks up to their middle.
  double next_median() {
    const std::size_t n = sorted_.size();
    stream_.words(words_used_, starts_);
    words_used_ += static_cast<std::int64_t>(starts_.size());
    std::ranges::fill(drawn_, 0U);
    std::size_t left = n;
    for (const std::uint32_t word : starts_) {
      std::size_t at = (std::uint64_t{word} * n) >> 32U;
      for (std::size_t taken = 0; taken < block_ && left > 0; ++taken, --left) {
        ++drawn_[rank_[at]];
        if (++at == n) at = 0;
      }
    }
    std::size_t rank = 0;
    std::size_t below = drawn_[0];  // samples drawn up to `rank`
    while (below <= (n - 1) / 2) below += drawn_[++rank];
    const double lower = sorted_[rank];
    while (below <= n / 2) below += drawn_[++rank];
    return (lower + sorted_[rank]) / 2;
  }

 private:
  std::vector<double> sorted_;
  std::vector<std::size_t> rank_;  ///< of each sample, in the order measured
  std::vector<std::uint32_t> drawn_;
  std::size_t block_;
  std::vector<std::uint32_t> starts_;
  Stream stream_;
  std::int64_t words_used_ = 0;
};

/// Geometric mean of positive values; of one value, exactly that value.
double geometric_mean(const std::vector<double>& values) {
  if (values.size() == 1) return values.front();
  double sum = 0;
  for (const double value : values) sum += std::log(value);
  return std::exp(sum / static_cast<double>(values.size()));
}

/// One side of a comparison.
class Side {
 public:
  Side(const ProcessSamples& processes, std::size_t block, const std::string& name) {
    for (const auto& samples : processes)
      processes_.emplace_back(samples, block,
                              processes_.empty() ? name : name + " " + std::to_string(processes_.size()));
    for (const auto& process : processes_) medians_.push_back(process.median());
  }

  double median() const { return geometric_mean(medians_); }
  double next_median() {
    drawn_.clear();
    for (auto& process : processes_) drawn_.push_back(process.next_median());
    return geometric_mean(drawn_);
  }
  double count() const { return static_cast<double>(medians_.size()); }
  /// Squares of the medians' logarithms, about their mean.
  double sum_of_squares() const {
    double sum = 0;
    for (const double value : medians_) sum += std::pow(std::log(value / median()), 2);
    return sum;
  }

 private:
  std::vector<Resampler> processes_;
  std::vector<double> medians_, drawn_;
};

/// Draws factors by which the ratio may be off because other processes would have run.
class ProcessFactors {
 public:
  ProcessFactors(const Side& before, const Side& after, const std::string& name)
      : normals_(static_cast<std::size_t>(before.count() + after.count()) - 1), stream_(0, name) {
    const double freedom = static_cast<double>(normals_.size()) - 1;
    if (freedom > 0)
      standard_error_ = std::sqrt((before.sum_of_squares() + after.sum_of_squares()) / freedom *
                                  (1 / before.count() + 1 / after.count()));
  }

  bool are_known() const { return normals_.size() > 1; }
  double next() {
    if (!are_known()) return 1;
    stream_.normals(normals_used_, normals_);
    normals_used_ += static_cast<std::int64_t>(normals_.size());
    double squares = 0;
    for (std::size_t i = 1; i < normals_.size(); ++i) squares += normals_[i] * normals_[i];
    const double students_t = normals_[0] / std::sqrt(squares / static_cast<double>(normals_.size() - 1));
    return std::exp(standard_error_ * students_t);
  }

 private:
  std::vector<double> normals_;  ///< one for the numerator of t, and one for each degree of freedom
  double standard_error_ = 0;    ///< of the ratio's logarithm
  Stream stream_;
  std::int64_t normals_used_ = 0;
};

/// About 5 ms of work; drawing a set costs as much as this many samples, beside its own.
constexpr std::size_t kSamplesDrawn = 2'000'000;
constexpr std::size_t kSamplesOfASet = 64;

std::size_t affordable_replicates(const ProcessSamples& before, const ProcessSamples& after) {
  const std::size_t each =
      sample_count(before) + sample_count(after) + kSamplesOfASet * (before.size() + after.size());
  return std::clamp<std::size_t>(kSamplesDrawn / each, 1000, 10000);
}

}  // namespace

RatioInterval ratio_of_medians(const ProcessSamples& before, const ProcessSamples& after,
                               const BootstrapOptions& options, std::string_view name) {
  Side of_before(before, options.block, std::string(name) + " before");
  Side of_after(after, options.block, std::string(name) + " after");
  ProcessFactors factors(of_before, of_after, std::string(name) + " processes");
  std::vector<double> ratios(options.replicates > 0 ? options.replicates
                                                    : affordable_replicates(before, after));
  for (double& ratio : ratios) {
    const double numerator = of_after.next_median() * factors.next();
    ratio = numerator / of_before.next_median();
  }
  std::ranges::sort(ratios);
  return {.ratio = of_after.median() / of_before.median(),
          .low = quantile(ratios, (1 - options.confidence) / 2),
          .high = quantile(ratios, (1 + options.confidence) / 2),
          .covers_processes = factors.are_known()};
}

double median_of_processes(const ProcessSamples& processes) {
  return Side(processes, 1, "").median();
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
