#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace ssmbench {

/// Median of one set of samples over that of another, with a confidence interval.
struct RatioInterval {
  double ratio = 1, low = 1, high = 1;
};

struct BootstrapOptions {
  double confidence = 0.99;
  /// Samples that are drawn together. Neighbours in time are alike (clocks and caches change slowly), and
  /// drawing them one by one would make the interval too narrow. 0: the cube root of their number, rounded
  /// up; 1: the textbook's bootstrap of independent samples.
  std::size_t block = 0;
  /// 0: as many as a fixed amount of work allows, 1000 at least and 10000 at most.
  std::size_t replicates = 0;
};

/// The ratio median(after) / median(before) and its percentile interval: both sets are drawn anew many times,
/// in circular blocks of samples as they followed one another. The same samples and name give the same
/// interval, on every machine. Samples are positive; neither set is empty.
/// Source: Efron & Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 13; blocks: Politis &
/// Romano, "A circular block-resampling procedure for stationary data" (1992), of length ~ n^(1/3) as Hall,
/// Horowitz & Jing, Biometrika 82 (1995), find for variances.
RatioInterval ratio_of_medians(const std::vector<double>& before, const std::vector<double>& after,
                               const BootstrapOptions& options, std::string_view name);

/// The fewest samples that say anything about their median with that confidence: all n lie on the same side
/// of it with probability 2^(1 − n).
std::size_t fewest_samples(double confidence);

}  // namespace ssmbench
