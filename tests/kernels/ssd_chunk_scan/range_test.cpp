#include "kernels/ssd_chunk_scan/range.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "catch.h"

using namespace ssmbench;

TEST_CASE("SSD scales: powers of two with exact inverses that reach the target") {
  for (const int target : {kDeltaTarget, kWeightTarget, kTileTarget, kTopTarget})
    for (int exponent = std::max(target - 125, -126); exponent <= 122; ++exponent)
      for (const float fraction : {1.0F, 1.3F, 2.0F - std::numeric_limits<float>::epsilon()}) {
        const float magnitude = std::ldexp(fraction, exponent);
        CAPTURE(target, magnitude);
        const SsdScale scale = scale_to(magnitude, target);
        CHECK(scale.up * scale.down == 1.0F);
        CHECK(std::ldexp(1.0F, std::ilogb(scale.up)) == scale.up);
        CHECK(magnitude * scale.up == std::ldexp(fraction, target));
        CHECK(magnitude * scale.up * scale.down == magnitude);
      }
}

TEST_CASE("SSD scales: what is tiny is moved as far up as the inverse is a normal number, 0 stays 0") {
  for (const float tiny :
       {0.0F, std::numeric_limits<float>::denorm_min(), 1e-40F, std::numeric_limits<float>::min()}) {
    const SsdScale scale = scale_to(tiny, kTileTarget);
    CHECK(scale.up == 0x1p126F);
    CHECK(scale.down == std::numeric_limits<float>::min());
    CHECK(tiny * scale.up * scale.down == tiny);
  }
  CHECK(std::isfinite(scale_to(std::numeric_limits<float>::infinity(), kTileTarget).up));
}

TEST_CASE("SSD scales: the sign does not count") {
  CHECK(scale_to(-0.3F, kTileTarget).up == scale_to(0.3F, kTileTarget).up);
}
