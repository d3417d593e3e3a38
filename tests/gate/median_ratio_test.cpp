#include "gate/median_ratio.h"

#include <cmath>
#include <limits>

#include "base/random.h"
#include "catch.h"
#include "gate/students_t.h"

using namespace ssmbench;

namespace {

/// Normal samples about 1 with neighbours of that correlation, in logarithms.
std::vector<double> simulate(std::int64_t seed, std::size_t samples, double spread, double correlation) {
  std::vector<double> normals(samples);
  Stream(seed, "samples").normals(0, normals);
  std::vector<double> result;
  double state = normals[0];
  for (std::size_t i = 0; i < samples; ++i) {
    if (i > 0) state = correlation * state + std::sqrt(1 - correlation * correlation) * normals[i];
    result.push_back(std::exp(spread * state));
  }
  return result;
}

/// How many of 2000 intervals of what has the ratio 1 do not contain it.
int misses(std::size_t samples, double correlation, double confidence) {
  int count = 0;
  for (std::int64_t i = 0; i < 2000; ++i) {
    const auto interval = ratio_of_medians({simulate(2 * i, samples, 0.01, correlation)},
                                           {simulate(2 * i + 1, samples, 0.01, correlation)}, confidence);
    count += interval.low > 1 || interval.high < 1 ? 1 : 0;
  }
  return count;
}

bool is_near(double value, double expected, double relative) {
  return std::abs(value - expected) <= relative * expected;
}

}  // namespace

TEST_CASE("gate: Student's t against tables and closed forms") {
  CHECK(is_near(students_t_outside(1, 1), 0.5, 1e-13));  // Cauchy: 1 − 2/π·atan t
  CHECK(is_near(students_t_outside(1e6, 1), 6.3661977236737e-07, 1e-10));
  for (const double t : {0.1, 1.5, 40.0})
    CHECK(is_near(students_t_outside(t, 2), 1 - t / std::sqrt(2 + t * t), 1e-9));
  CHECK(is_near(students_t_outside(5, 1e9), std::erfc(5 / std::sqrt(2.0)), 1e-6));
  CHECK(students_t_outside(0, 3) == 1);
  CHECK(students_t_outside(std::numeric_limits<double>::infinity(), 3) == 0);
  // Two-sided quantiles of printed tables.
  CHECK(is_near(students_t_quantile(0.01, 1), 63.657, 1e-5));
  CHECK(is_near(students_t_quantile(0.01, 4), 4.604, 1e-4));
  CHECK(is_near(students_t_quantile(0.05, 10), 2.228, 2e-4));
  CHECK(is_near(students_t_quantile(0.001, 30), 3.646, 2e-4));
  CHECK(is_near(students_t_quantile(0.5, 120), 0.677, 1e-3));
  for (const double freedom : {1.0, 2.5, 17.0, 400.0})
    for (const double p : {0.5, 0.01, 1e-9})
      CHECK(is_near(students_t_outside(students_t_quantile(p, freedom), freedom), p, 1e-9));
}

TEST_CASE("gate: intervals contain the truth as often as they say") {
  // 20 of 2000 at 99% miss it on average; 34 is 3 standard deviations more. Few that are correlated miss more.
  CHECK(misses(20, 0, 0.99) <= 34);
  CHECK(misses(100, 0, 0.99) <= 34);
  CHECK(misses(100, 0.3, 0.99) <= 40);
  CHECK(misses(20, 0.3, 0.99) <= 60);
  const int of_90 = misses(100, 0, 0.9);
  CHECK(of_90 <= 240);
  CHECK(of_90 >= 120);  // and are not too wide
}

TEST_CASE("gate: the standard error of a median is that of its distribution") {
  // π/2·σ²/n for each side; 1000 samples of normals tell it to some 20%.
  double sum = 0;
  for (std::int64_t i = 0; i < 50; ++i) {
    const auto interval =
        ratio_of_medians({simulate(2 * i, 1000, 0.01, 0)}, {simulate(2 * i + 1, 1000, 0.01, 0)}, 0.99);
    sum += interval.standard_error / 50;
  }
  CHECK(is_near(sum, 0.01 * std::sqrt(2 * 1.5707963 / 1000), 0.06));
}

TEST_CASE("gate: samples that drift widen the interval, the same ones in another order do not") {
  std::vector<double> drifting(200);
  for (std::size_t i = 0; i < drifting.size(); ++i)  // slow waves: neighbours are alike
    drifting[i] = 1 + 0.02 * std::sin(static_cast<double>(i) / 15);
  std::vector<double> mixed;  // 200 and 73 have no factor in common
  for (std::size_t i = 0; i < drifting.size(); ++i) mixed.push_back(drifting[i * 73 % drifting.size()]);
  const auto width = [](const std::vector<double>& samples) {
    const auto interval = ratio_of_medians({samples}, {samples}, 0.99);
    return interval.high - interval.low;
  };
  CHECK(width(drifting) > 1.8 * width(mixed));
}

TEST_CASE("gate: of processes alone the interval is that of Student's t") {
  // Samples that are all the same leave the processes' level. Medians 1, 1.02 and 1, 1.04, 1.02 (SciPy:
  // stats.t.interval(0.9, 3, m, s·sqrt(1/2 + 1/3)) of their logarithms, exp of it).
  const auto process = [](double median) { return std::vector<double>(10, median); };
  const RatioInterval interval =
      ratio_of_medians({process(1), process(1.02)}, {process(1), process(1.04), process(1.02)}, 0.9);
  CHECK(interval.covers_processes);
  CHECK(std::abs(interval.ratio - std::cbrt(1.04 * 1.02) / std::sqrt(1.02)) < 1e-12);
  CHECK(std::abs(interval.low - 0.97165) < 5e-6);
  CHECK(std::abs(interval.high - 1.04949) < 5e-6);
  CHECK_FALSE(ratio_of_medians({process(1)}, {process(2)}, 0.99).covers_processes);
}

TEST_CASE("gate: sets of one sample, and constant ones") {
  const RatioInterval one = ratio_of_medians({{2.0}}, {{3.0}}, 0.99);
  CHECK(one.low == 1.5);
  CHECK(one.high == 1.5);
  const RatioInterval constant =
      ratio_of_medians({std::vector<double>(30, 0.5)}, {std::vector<double>(17, 0.5)}, 0.99);
  CHECK(constant.low == 1);
  CHECK(constant.high == 1);
  CHECK(chance_of(constant, 1) == 1);
  CHECK(chance_of(one, 1.4) == 0);
  CHECK(chance_of(one, 1.6) == 1);
}

TEST_CASE("gate: p-values are corrected for their number after Holm") {
  // R: p.adjust(c(0.01, 0.04, 0.03, 0.005, 0.5), "holm")
  const auto corrected = corrected_by_holm({0.01, 0.04, 0.03, 0.005, 0.5});
  const std::vector<double> expected{0.04, 0.09, 0.09, 0.025, 0.5};
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(is_near(corrected[i], expected[i], 1e-12));
  CHECK(corrected_by_holm({0.3}) == std::vector<double>{0.3});
  CHECK(corrected_by_holm({0.7, 0.8}) == std::vector<double>{1, 1});
}

TEST_CASE("gate: the fewest samples of a confidence") {
  CHECK(fewest_samples(0.99) == 8);  // 2^-7 = 0.8%
  CHECK(fewest_samples(0.95) == 6);
  CHECK(fewest_samples(0.5) == 2);
}
