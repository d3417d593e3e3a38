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
