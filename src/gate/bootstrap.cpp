#include "gate/bootstrap.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>

#include "bench/statistics.h"
#include "inputs/random.h"

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

  /// Of the next set: counts how often each sample is drawn, and walks up to the middle of the counts.
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

/// About 5 ms of work.
constexpr std::size_t kSamplesDrawn = 2'000'000;

}  // namespace

RatioInterval ratio_of_medians(const std::vector<double>& before, const std::vector<double>& after,
                               const BootstrapOptions& options, std::string_view name) {
  Resampler of_before(before, options.block, std::string(name) + " before");
  Resampler of_after(after, options.block, std::string(name) + " after");
  const std::size_t replicates =
      options.replicates > 0
          ? options.replicates
          : std::clamp<std::size_t>(kSamplesDrawn / (before.size() + after.size()), 1000, 10000);
  std::vector<double> ratios(replicates);
  for (double& ratio : ratios) {
    const double numerator = of_after.next_median();
    ratio = numerator / of_before.next_median();
  }
  std::ranges::sort(ratios);
  return {.ratio = of_after.median() / of_before.median(),
          .low = quantile(ratios, (1 - options.confidence) / 2),
          .high = quantile(ratios, (1 + options.confidence) / 2)};
}

std::size_t fewest_samples(double confidence) {
  return static_cast<std::size_t>(std::ceil(1 - std::log2(1 - confidence)));
}

}  // namespace ssmbench
