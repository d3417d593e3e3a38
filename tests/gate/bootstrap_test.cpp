#include "gate/bootstrap.h"

#include <cmath>

#include "catch.h"

using namespace ssmbench;

namespace {

const std::vector<double> kBefore{1.0213, 1.0362, 0.9502, 0.9972, 1.0205, 1.0274, 1.0132, 1.0304,
                                  1.0058, 1.0111, 1.0036, 0.9788, 0.9832, 1.0076, 0.9885, 1.0258,
                                  1.0262, 1.0366, 0.9995, 1.0281, 0.982,  0.9838, 1.0016, 1.0056};
const std::vector<double> kAfter{0.9913, 0.9874, 1.0511, 1.0134, 1.0784, 1.9,    1.0496, 1.0465,
                                 1.0683, 1.0352, 1.0744, 1.0237, 1.033,  1.019,  1.0588, 1.0411,
                                 1.0134, 1.1044, 1.0287, 1.0364, 1.0524, 1.096,  1.0354, 1.0622,
                                 1.0431, 0.9953, 1.065,  1.0723, 1.0325, 1.0395, 0.9942};

}  // namespace

TEST_CASE("gate: intervals are those of SciPy's bootstrap") {
  // ratio = lambda a, b, axis: np.median(a, axis=axis) / np.median(b, axis=axis)
  // scipy.stats.bootstrap((after, before), ratio, method="percentile", confidence_level=c,
  //                       n_resamples=200000, batch=10000).confidence_interval
  // SciPy 1.15 with four seeds: c = 0.99: 1.01138…1.01146 to 1.05628…1.05711; c = 0.9: 1.01910…1.01917 to
  // 1.04654.
  const auto interval = [](double confidence) {
    return ratio_of_medians({kBefore}, {kAfter}, {.confidence = confidence, .block = 1, .replicates = 100000},
                            "scipy");
  };
  const RatioInterval wide = interval(0.99);
  CHECK(std::abs(wide.ratio - 1.0341710539386113) < 1e-15);
  CHECK(std::abs(wide.low - 1.01142) < 4e-4);
  CHECK(std::abs(wide.high - 1.05670) < 8e-4);
  const RatioInterval narrow = interval(0.9);
  CHECK(std::abs(narrow.low - 1.01913) < 4e-4);
  CHECK(std::abs(narrow.high - 1.04654) < 4e-4);
}

TEST_CASE("gate: the same samples and name give the same interval, another name another one") {
  const auto interval = [](const char* name) { return ratio_of_medians({kBefore}, {kAfter}, {}, name); };
  CHECK(interval("a").low == interval("a").low);
  CHECK(interval("a").high == interval("a").high);
  CHECK((interval("a").low != interval("b").low || interval("a").high != interval("b").high));
}

TEST_CASE("gate: samples that drift widen the interval only when they are drawn in blocks") {
  std::vector<double> drifting(200);
  for (std::size_t i = 0; i < drifting.size(); ++i)  // slow waves: neighbours are alike
    drifting[i] = 1 + 0.02 * std::sin(static_cast<double>(i) / 15);
  const auto width = [&](std::size_t block) {
    const auto interval = ratio_of_medians({drifting}, {drifting}, {.block = block}, "drift");
    return interval.high - interval.low;
  };
  CHECK(width(0) > 1.8 * width(1));
}

TEST_CASE("gate: of processes alone the interval is that of Student's t") {
  // Samples that are all the same leave the processes' level. Medians 1, 1.02 and 1, 1.04, 1.02 (SciPy:
  // stats.t.interval(0.9, 3, m, s·sqrt(1/2 + 1/3)) of their logarithms, exp of it).
  const auto process = [](double median) { return std::vector<double>(10, median); };
  const RatioInterval interval =
      ratio_of_medians({process(1), process(1.02)}, {process(1), process(1.04), process(1.02)},
                       {.confidence = 0.9, .replicates = 400000}, "t");
  CHECK(interval.covers_processes);
  CHECK(std::abs(interval.ratio - std::cbrt(1.04 * 1.02) / std::sqrt(1.02)) < 1e-12);
  CHECK(std::abs(interval.low - 0.97165) < 5e-4);
  CHECK(std::abs(interval.high - 1.04949) < 5e-4);
  CHECK_FALSE(ratio_of_medians({kBefore}, {kAfter}, {}, "one each").covers_processes);
}

TEST_CASE("gate: sets of one and of two samples, and constant ones") {
  const RatioInterval one = ratio_of_medians({{2.0}}, {{3.0}}, {}, "one");
  CHECK(one.low == 1.5);
  CHECK(one.high == 1.5);
  const RatioInterval two = ratio_of_medians({{1.0, 1.0}}, {{1.0, 3.0}}, {.block = 1}, "two");
  CHECK(two.ratio == 2);
  CHECK(two.low == 1);
  CHECK(two.high == 3);
  const RatioInterval constant =
      ratio_of_medians({std::vector<double>(30, 0.5)}, {std::vector<double>(17, 0.5)}, {}, "");
  CHECK(constant.low == 1);
  CHECK(constant.high == 1);
}

TEST_CASE("gate: the fewest samples of a confidence") {
  CHECK(fewest_samples(0.99) == 8);  // 2^-7 = 0.8%
  CHECK(fewest_samples(0.95) == 6);
  CHECK(fewest_samples(0.5) == 2);
}
