#include "kernels/common/activations.h"

#include <cmath>

#include "catch.h"

using namespace ssmbench;

TEST_CASE("silu and its derivative") {
  for (float z = -60.0F; z <= 60.0F; z += 0.173F) {
    CAPTURE(z);
    const double x = z;
    const double sigma = 1 / (1 + std::exp(-x));
    const double rest = 1 / (1 + std::exp(x));
    const double slope = sigma * (1 + x * rest);
    const ValueSlope gate = silu_slope(z);
    CHECK(std::abs(gate.value - x * sigma) <= 4e-7 * std::abs(x * sigma));
    // 1 + z·(1 − σ) cancels near its zero.
    CHECK(std::abs(gate.slope - slope) <= 4e-7 * sigma * (1 + std::abs(x * rest)));
  }
  CHECK(silu_slope(0.0F).value == 0.0F);
  CHECK(silu_slope(0.0F).slope == 0.5F);
  CHECK(silu_slope(-200.0F).slope == 0.0F);
  CHECK(silu_slope(200.0F).slope == 1.0F);
}
