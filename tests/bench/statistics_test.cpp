#include "bench/statistics.h"

#include <cmath>

#include "catch.h"

using namespace ssmbench;

TEST_CASE("statistics of known samples") {
  // numpy: np.percentile([3,1,4,1,5,9,2,6], [5, 50, 95, 99]) = 1, 3.5, 7.95, 8.79; np.std(ddof=1)
  // = 2.748376143938713
  const auto stats = summarize({3, 1, 4, 1, 5, 9, 2, 6});
  CHECK(std::abs(stats.p5_ms - 1.0) < 1e-12);
  CHECK(std::abs(stats.median_ms - 3.5) < 1e-12);
  CHECK(std::abs(stats.p95_ms - 7.95) < 1e-12);
  CHECK(std::abs(stats.p99_ms - 8.79) < 1e-12);
  CHECK(std::abs(stats.mean_ms - 3.875) < 1e-12);
  CHECK(std::abs(stats.stdev_ms - 2.748376143938713) < 1e-12);
  CHECK(stats.min_ms == 1);
  CHECK(stats.max_ms == 9);
  CHECK(stats.samples_ms == std::vector<double>{3, 1, 4, 1, 5, 9, 2, 6});  // raw, in the order measured
}

TEST_CASE("one sample is its own statistics") {
  const auto stats = summarize({2.5});
  CHECK(stats.median_ms == 2.5);
  CHECK(stats.p99_ms == 2.5);
  CHECK(stats.stdev_ms == 0);
}

TEST_CASE("samples far from the others are counted and kept") {
  const auto stats = summarize({1, 1.1, 0.9, 1.05, 0.95, 5, 1});
  CHECK(stats.outliers == 1);
  CHECK(stats.samples_ms.size() == 7);
  CHECK(stats.max_ms == 5);
  CHECK(summarize({1, 1.1, 0.9, 1.05, 0.95}).outliers == 0);
  // Modified z-scores of 1, 2, 3, 4 and x: |x - 3| / (1.4826 * 1) > 3.5 from 8.19 on.
  CHECK(find_outliers({1, 2, 3, 4, 8.1}).back() == false);
  CHECK(find_outliers({1, 2, 3, 4, 8.3}).back() == true);
  // More than half of them equal, as with coarse clocks: the mean distance takes the median distance's place.
  CHECK(find_outliers({1, 1, 1, 1, 1, 1, 1, 2}) ==
        std::vector<bool>{false, false, false, false, false, false, false, true});
  CHECK(summarize({2, 2, 2, 2}).outliers == 0);
}
