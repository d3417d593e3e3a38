#pragma once

#include <vector>

#include "record/result.h"

namespace ssmbench {

/// Statistics of at least one sample. stdev is the sample standard deviation (n − 1), 0 for one sample;
/// outliers as find_outliers has them.
TimingStats summarize(std::vector<double> samples_ms);

/// Quantile q in [0, 1] of ascending samples: linear interpolation between order statistics (Hyndman & Fan
/// 1996, type 7; NumPy's default).
double quantile(const std::vector<double>& ascending, double q);

/// For each sample, whether its modified z-score is above 3.5 (Iglewicz & Hoaglin 1993, "How to Detect and
/// Handle Outliers"): its distance from the median in units of the median distance, or of the mean distance
/// where more than half of the samples are equal.
std::vector<bool> find_outliers(const std::vector<double>& samples);

}  // namespace ssmbench
