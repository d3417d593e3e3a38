#include "reference/common/lane_math.h"

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "catch.h"

using namespace ssmbench;

namespace {

using Function = void (*)(const double*, std::int64_t, double*);

/// The largest difference from libm in units of the spacing of numbers at the result, over an odd number of
/// arguments, so that the last do not fill a vector.
double worst_ulp(Function function, const std::function<double(double)>& exact, double low, double high) {
  constexpr std::int64_t kCount = 100003;
  std::vector<double> x(kCount);
  for (std::int64_t i = 0; i < kCount; ++i)
    x[i] = low + (high - low) * static_cast<double>(i) / static_cast<double>(kCount - 1);
  std::vector<double> got(kCount);
  function(x.data(), kCount, got.data());
  double worst = 0;
  for (std::int64_t i = 0; i < kCount; ++i) {
    const double expected = exact(x[i]);
    const double spacing =
        std::nextafter(std::abs(expected), std::numeric_limits<double>::infinity()) - std::abs(expected);
    worst = std::max(worst, std::abs(got[i] - expected) / spacing);
  }
  return worst;
}

double of_one(Function function, double x) {
  double result = 0;
  function(&x, 1, &result);
  return result;
}

}  // namespace

TEST_CASE("elementary functions of many numbers are those of libm to 4 ulp") {
  const auto exp = [](double x) { return std::exp(x); };
  const auto exp_of_minus = [](double x) { return std::exp(-std::abs(x)); };
  const auto log1p = [](double x) { return std::log1p(x); };
  const auto sine = [](double x) { return std::sin(x); };
  const auto cosine = [](double x) { return std::cos(x); };
  CHECK(worst_ulp(exp_of, exp, -708, 709) <= 4);
  CHECK(worst_ulp(exp_of, exp, -1e-3, 1e-3) <= 4);
  CHECK(worst_ulp(exp_of_minus_size, exp_of_minus, -50, 50) <= 4);
  CHECK(worst_ulp(log1p_of, log1p, 0, 1) <= 4);
  CHECK(worst_ulp(log1p_of, log1p, 0, 1e-12) <= 4);
  CHECK(worst_ulp(sine_of, sine, -3, 3) <= 4);
  CHECK(worst_ulp(cosine_of, cosine, -1.5, 1.5) <= 4);
  CHECK(worst_ulp(sine_of, sine, 40000, 50000) == 0);
  CHECK(worst_ulp(cosine_of, cosine, 1e9, 1e12) == 0);
}

TEST_CASE("elementary functions of many numbers at the ends of their ranges") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Function function : {exp_of, exp_of_minus_size, log1p_of, sine_of, cosine_of})
    CHECK(std::isnan(of_one(function, nan)));
  CHECK(of_one(exp_of, -2000) == 0);
  CHECK(of_one(exp_of, 2000) > 1e307);
  CHECK(of_one(exp_of_minus_size, 2000) == 0);
  CHECK(of_one(exp_of_minus_size, 0) == 1);
  CHECK(of_one(log1p_of, 0) == 0);
}
