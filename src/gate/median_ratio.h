#pragma once

#include <cstddef>
#include <vector>

namespace ssmbench {

/// What was sampled of one thing: by each process, in the order measured.
using ProcessSamples = std::vector<std::vector<double>>;

/// Median of one set of samples over that of another, with a confidence interval.
struct RatioInterval {
  double ratio = 1, low = 1, high = 1;
  /// Whether it covers what processes of the same program differ by, which one process does not show.
  bool covers_processes = false;
  double standard_error = 0;  ///< of the ratio's logarithm
  double freedom = 1;         ///< degrees of freedom of that
};

/// The ratio of medians, after over before, with the confidence interval of its logarithm by Student's t. Of
/// several processes the median is the geometric mean of theirs. The variance is the sum of two:
///   Samples: each process's median has the standard error that lies between two of its order statistics,
///   placed at ± 1.96 standard deviations of the rank of the median. Neighbours in time are alike (clocks and
///   caches change slowly), so that this deviation is that of correlated signs about the median, up to the
///   cube root of the number of samples apart.
///   Processes: where a side has several, their medians' spread, both sides' pooled, or that of the one side
///   that has several.
/// Degrees of freedom are Welch's and Satterthwaite's. Samples are positive; no set is empty.
/// Source: McKean & Schrader, "A comparison of methods for studentizing the sample median" (Communications in
/// Statistics B 13, 1984); correlation: Newey & West, Econometrica 55 (1987); Satterthwaite, Biometrics
/// Bulletin 2 (1946); levels: Kalibera & Jones, "Rigorous benchmarking in reasonable time" (ISMM 2013).
RatioInterval ratio_of_medians(const ProcessSamples& before, const ProcessSamples& after, double confidence);

/// The probability of a ratio as far from 1 as this, on either side, were it `bound` ≥ 1 in truth, or
/// 1/bound: a p-value. 1 where the ratio is within the bound.
double chance_of(const RatioInterval& interval, double bound);

/// The p-values of several hypotheses, each as if it were the only one, corrected for their number: rejecting
/// those that are at most α rejects a true one with probability α at most, however many there are and however
/// they depend on each other. Source: Holm, "A simple sequentially rejective multiple test procedure"
/// (Scandinavian Journal of Statistics 6, 1979).
std::vector<double> corrected_by_holm(const std::vector<double>& p_values);

/// Geometric mean of the processes' medians.
double median_of_processes(const ProcessSamples& processes);
/// Number of samples of all processes together.
std::size_t sample_count(const ProcessSamples& processes);

/// The fewest samples that say anything about their median with that confidence: all n lie on the same side
/// of it with probability 2^(1 − n).
std::size_t fewest_samples(double confidence);

}  // namespace ssmbench
