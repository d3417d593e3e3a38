#include "kernels/common/index_math.h"

#include <limits>

#include "catch.h"

using namespace ssmbench;

TEST_CASE("ceil_div counts the pieces, the last one partial") {
  CHECK(ceil_div(0, 4) == 0);
  CHECK(ceil_div(1, 4) == 1);
  CHECK(ceil_div(4, 4) == 1);
  CHECK(ceil_div(5, 4) == 2);
  // (a + b - 1) / b would overflow.
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  CHECK(ceil_div(most, 2) == most / 2 + 1);
}

TEST_CASE("steps_within cuts the last piece at the end") {
  CHECK(steps_within(0, 32, 1) == 1);
  CHECK(steps_within(0, 32, 31) == 31);
  CHECK(steps_within(0, 32, 32) == 32);
  CHECK(steps_within(0, 32, 33) == 32);
  CHECK(steps_within(32, 32, 33) == 1);
  // A row longer than int holds: the difference must be taken before it is narrowed.
  CHECK(steps_within(0, 2048, std::int64_t{1} << 33) == 2048);
  CHECK(steps_within((std::int64_t{1} << 33) - 5, 2048, std::int64_t{1} << 33) == 5);
}
