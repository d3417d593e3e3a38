#include "gate/students_t.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ssmbench {
namespace {

/// The continued fraction of I(x; a, b), DLMF 8.17.22, evaluated as Lentz does; converges fast for
/// x < (a + 1)/(a + b + 2).
double beta_fraction(double x, double a, double b) {
  constexpr double kTiny = 1e-300;
  constexpr double kPrecise = 1e-14;
  constexpr int kMostTerms = 10'000;
  const auto not_zero = [](double value) { return std::abs(value) < kTiny ? kTiny : value; };
  double c = 1;
  double d = 1 / not_zero(1 - (a + b) * x / (a + 1));
  double fraction = d;
  const auto step = [&](double term) {
    d = 1 / not_zero(1 + term * d);
    c = not_zero(1 + term / c);
    fraction *= c * d;
    return c * d;
  };
  for (int m = 1; m < kMostTerms; ++m) {
    step(m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)));
    const double change = step(-(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)));
    if (std::abs(change - 1) < kPrecise) break;
  }
  return fraction;
}

/// I(x; a, b), where y = 1 − x.
double incomplete_beta(double x, double y, double a, double b) {
  if (x <= 0) return 0;
  if (y <= 0) return 1;
  const double factor =
      std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log(y));
  if (x < (a + 1) / (a + b + 2)) return factor * beta_fraction(x, a, b) / a;
  return 1 - factor * beta_fraction(y, b, a) / b;
}

double log_density(double t, double freedom) {
  return std::lgamma((freedom + 1) / 2) - std::lgamma(freedom / 2) -
         std::log(freedom * std::numbers::pi) / 2 - (freedom + 1) / 2 * std::log1p(t * t / freedom);
}

}  // namespace

double students_t_outside(double t, double freedom) {
  if (std::isinf(t)) return 0;
  const double square = t * t;
  return incomplete_beta(freedom / (freedom + square), square / (freedom + square), freedom / 2, 0.5);
}

double students_t_quantile(double probability, double freedom) {
  // Newton's method for log P as a function of log t, which is nearly straight; where it is not, a step could
  // go to where P underflows.
  constexpr double kLongestStep = 1;
  constexpr int kMostSteps = 100;
  constexpr double kPrecise = 1e-13;
  double t = 1;
  for (int step = 0; step < kMostSteps; ++step) {
    const double outside = students_t_outside(t, freedom);
    const double slope = -2 * std::exp(log_density(t, freedom)) * t / outside;
    const double change = std::min((std::log(probability) - std::log(outside)) / slope, kLongestStep);
    t *= std::exp(change);
    if (std::abs(change) < kPrecise) break;
  }
  return t;
}

}  // namespace ssmbench
