#include "kernels/mamba3/hopper/increments.h"

#include <cmath>
#include <initializer_list>

#include "catch.h"

using namespace ssmbench;
using namespace ssmbench::mamba3_hopper;

TEST_CASE("the fast hyperbolic tangent keeps its digits near 0", "[mamba3]") {
  // The most that it is off, of results above 1/2, where roundings of an exponential and its argument count as
  // they are. (On an H200, of all bf16 and f16 numbers: 2.7 roundoffs, and 2.6 of tanhf.)
  for (int exponent = -30; exponent <= 6; ++exponent)
    for (float x = std::ldexp(1.0F, exponent); x < std::ldexp(2.0F, exponent); x *= 1.0077F)
      for (const float signed_x : {x, -x}) {
        CAPTURE(signed_x);
        const double exact = std::tanh(static_cast<double>(signed_x));
        CHECK(std::abs(fast_tanh(signed_x) - exact) <= 4 * 0x1p-24 * std::abs(exact));
      }
  CHECK(fast_tanh(0.0F) == 0.0F);
  CHECK(fast_tanh(INFINITY) == 1.0F);
  CHECK(fast_tanh(-INFINITY) == -1.0F);
  CHECK(std::isnan(fast_tanh(std::nanf(""))));
}
