#pragma once

#include <vector>

namespace ssmbench {

/// An interval that holds the median of whatever the samples were drawn from, and how surely it does.
struct MedianInterval {
  double low = 0, high = 0;
  double confidence = 0;
};

/// Between two of the samples themselves, as near to the middle as 95% allow; of too few samples, the
/// smallest and the largest, with the confidence that this has. Nothing is assumed of the distribution but
/// that samples are independent: the number of samples below the median is binomial (Conover, Practical
/// Nonparametric Statistics, 1999, §3.2). At least one sample.
MedianInterval median_interval(std::vector<double> samples);

}  // namespace ssmbench
