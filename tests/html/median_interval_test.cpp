#include "html/median_interval.h"

#include <cmath>
#include <numeric>
#include <vector>

#include "catch.h"

using namespace ssmbench;

namespace {

/// n, …, 2, 1: the sample of rank k is k.
std::vector<double> descending(int n) {
  std::vector<double> samples(n);
  std::iota(samples.rbegin(), samples.rend(), 1.0);
  return samples;
}

}  // namespace

TEST_CASE("the interval of a median is that of the binomial distribution") {
  // Ranks: Conover's table; confidence: 1 − 2·scipy.stats.binom.cdf(rank − 1, n, 0.5).
  struct Row {
    int n;
    double low, high, confidence;
  };
  for (const auto& row :
       {Row{1, 1, 1, 0.0}, Row{5, 1, 5, 0.9375}, Row{6, 1, 6, 0.96875}, Row{10, 2, 9, 0.978515625},
        Row{30, 10, 21, 0.957226}, Row{100, 40, 61, 0.964800}, Row{2000, 956, 1045, 0.953447}}) {
    CAPTURE(row.n);
    const MedianInterval interval = median_interval(descending(row.n));
    CHECK(interval.low == row.low);
    CHECK(interval.high == row.high);
    CHECK(std::abs(interval.confidence - row.confidence) < 1e-6);
  }
}
