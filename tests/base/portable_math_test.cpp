#include "base/portable_math.h"

#include <cmath>

#include "catch.h"

using namespace ssmbench;

namespace {

constexpr double kPromised = 1e-14;

bool close(double got, long double expected) {
  return std::fabs(static_cast<double>((got - expected) / expected)) < kPromised;
}

}  // namespace

TEST_CASE("portable exp and expm1 agree with the C library over their range") {
  for (double x = -700; x <= 700; x += 0.0137) {
    if (!close(portable::exp(x), std::exp(static_cast<long double>(x)))) FAIL("exp " << x);
    if (!close(portable::expm1(x), std::expm1(static_cast<long double>(x)))) FAIL("expm1 " << x);
  }
  // Near 0, where e^x - 1 would cancel, down to where it is x itself.
  for (double x = 1; x > 1e-300; x *= 0.37) {
    if (!close(portable::expm1(x), std::expm1(static_cast<long double>(x)))) FAIL("expm1 " << x);
    if (!close(portable::expm1(-x), std::expm1(static_cast<long double>(-x)))) FAIL("expm1 " << -x);
  }
  CHECK(portable::exp(0) == 1.0);
}

TEST_CASE("portable log and log1p agree with the C library over their range") {
  for (double x = 1e-307; x < 1e307; x *= 1.0137)
    if (!close(portable::log(x), std::log(static_cast<long double>(x)))) FAIL("log " << x);
  // Around 1 the logarithm passes 0, at √½ and √2 the reduction changes the exponent.
  for (double x = 0.5; x < 2; x += 0.000137)
    if (!close(portable::log(x), std::log(static_cast<long double>(x)))) FAIL("log " << x);
  for (double x = 1e-300; x < 1e300; x *= 1.37)
    if (!close(portable::log1p(x), std::log1p(static_cast<long double>(x)))) FAIL("log1p " << x);
  CHECK(portable::log(1) == 0.0);
}

TEST_CASE("portable softplus and its inverse undo each other") {
  for (double x = -600; x <= 600; x += 0.137)
    if (!close(portable::softplus(x), std::log1p(std::exp(static_cast<long double>(x)))))
      FAIL("softplus " << x);
  // softplus' ≤ softplus for x < 0, so a relative error of x grows by at most |x|, which is 16 at dt = 1e-7.
  for (double dt = 1e-7; dt < 100; dt *= 1.1)
    if (std::fabs(portable::softplus(portable::inverse_softplus(dt)) / dt - 1) > 20 * kPromised)
      FAIL("dt " << dt);
}
