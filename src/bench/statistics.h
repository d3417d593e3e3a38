#pragma once

#include <vector>

#include "model/result.h"

namespace ssmbench {

/// Statistics of at least one sample. stdev is the sample standard deviation (n − 1), 0 for one sample.
TimingStats summarize(std::vector<double> samples_ms);

/// Quantile q in [0, 1] of ascending samples: linear interpolation between order statistics (Hyndman & Fan
/// 1996, type 7; NumPy's default).
double quantile(const std::vector<double>& ascending, double q);

}  // namespace ssmbench
