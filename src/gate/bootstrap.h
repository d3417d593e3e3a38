#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace ssmbench {

/// What was sampled of one thing: by each process, in the order measured.
using ProcessSamples = std::vector<std::vector<double>>;

/// Median of one set of samples over that of another, with a confidence interval.
struct RatioInterval {
  double ratio = 1, low = 1, high = 1;
  /// Whether it covers what processes of the same program differ by, which one process does not show.
  bool covers_processes = false;
};

struct BootstrapOptions {
  double confidence = 0.99;
  /// Samples that are drawn together. Neighbours in time are alike (clocks and caches change slowly), and
  /// drawing them one by one would make the interval too narrow. 0: the cube root of their number, rounded
  /// up; 1: the textbook's bootstrap of independent samples.
  std::size_t block = 0;
  /// 0: as a fixed amount of work allows, 1000 at least and 10000 at most.
  std::size_t replicates = 0;
};

/// The ratio of medians, after over before, and its percentile interval by a bootstrap on two levels. Of
/// several processes the median is the geometric mean of theirs.
///   Samples: those of each process are drawn anew many times, in circular blocks as they followed one
///   another.
///   Processes: where a side has several, each replicate is off by what such a mean of medians may be off by:
///   a draw of Student's t times its standard error, from the spread of the processes' medians, both sides'
///   pooled, or that of the one side that has several. To draw a handful of processes with replacement
///   would make the interval much too narrow: of three, a ninth of the sets has the same one thrice.
/// The same samples and name give the same interval, on every machine. Samples are positive; no set is empty.
/// Source: Efron & Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 13; blocks: Politis &
/// Romano, "A circular block-resampling procedure for stationary data" (1992), of length ~ n^(1/3) as Hall,
/// Horowitz & Jing, Biometrika 82 (1995), find for variances; levels: Kalibera & Jones, "Rigorous
/// benchmarking in reasonable time" (ISMM 2013).
RatioInterval ratio_of_medians(const ProcessSamples& before, const ProcessSamples& after,
                               const BootstrapOptions& options, std::string_view name);

/// Geometric mean of the processes' medians.
double median_of_processes(const ProcessSamples& processes);
/// Number of samples of all processes together.
std::size_t sample_count(const ProcessSamples& processes);

/// The fewest samples that say anything about their median with that confidence: all n lie on the same side
/// of it with probability 2^(1 − n).
std::size_t fewest_samples(double confidence);

}  // namespace ssmbench
