#include "html/median_interval.h"

#include <algorithm>
#include <cmath>

namespace ssmbench {

MedianInterval median_interval(std::vector<double> samples) {
  constexpr double kOutside = 0.025;  // on either side
  std::ranges::sort(samples);
  const auto n = static_cast<double>(samples.size());
  // With the sample of rank k (from 0) as the lower end, the median is below it when at most k samples are.
  double below = 0;
  std::size_t rank = 0;
  for (std::size_t k = 0; 2 * k < samples.size(); ++k) {
    const auto i = static_cast<double>(k);
    const double choose = std::lgamma(n + 1) - std::lgamma(i + 1) - std::lgamma(n - i + 1);
    const double next = below + std::exp(choose - n * std::log(2.0));
    if (k > 0 && next > kOutside) break;
    below = next;
    rank = k;
  }
  return {samples[rank], samples[samples.size() - 1 - rank], 1 - 2 * below};
}

}  // namespace ssmbench
