#include "kernels/ssd_chunk_scan/range.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "catch.h"
#include "model/dtype.h"

using namespace ssmbench;

TEST_CASE("SSD scales: powers of two with exact inverses that reach the target") {
  for (const int target : {kWeightTarget, kTileTarget, kTopTarget})
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

namespace {

/// Mᵀ·dy of a chunk whose M is scaled, rounded to f16 and unscaled: the largest error of a row, in units of
/// Σ |M|·|dy|.
double error_of_f16(const std::vector<std::vector<float>>& M, const std::vector<float>& dy, float scale) {
  double worst = 0;
  for (std::size_t s = 0; s < M.size(); ++s) {
    double error = 0;
    double magnitude = 0;
    for (std::size_t t = s; t < M.size(); ++t) {
      const float rounded = f16_to_float(float_to_f16(scale * M[t][s])) / scale;
      error += (static_cast<double>(rounded) - M[t][s]) * dy[t];
      magnitude += std::abs(static_cast<double>(M[t][s]) * dy[t]);
    }
    worst = std::max(worst, std::abs(error) / magnitude);
  }
  return worst;
}

}  // namespace

TEST_CASE("SSD scales: in f16 M keeps its precision beside a step of 70 by its own largest element") {
  constexpr std::size_t kSteps = 64;
  std::mt19937 bits(7);
  std::normal_distribution<float> normal;
  std::vector<float> delta(kSteps, 5e-4F);
  delta[40] = 70;
  std::vector<std::vector<float>> M(kSteps, std::vector<float>(kSteps, 0.0F));
  float largest = 0;
  for (std::size_t t = 0; t < kSteps; ++t) {
    float decay = 0;
    for (std::size_t s = t + 1; s-- > 0;) {
      M[t][s] = 8 * normal(bits) * delta[s] * std::exp(decay);
      decay -= delta[s];
      largest = std::max(largest, std::abs(M[t][s]));
    }
  }
  std::vector<float> dy(kSteps);
  for (float& value : dy) value = normal(bits);
  const double rounding = 0x1p-11;
  CHECK(error_of_f16(M, dy, scale_to(largest, kTopTarget).up) <= rounding);
  CHECK(error_of_f16(M, dy, scale_to(70, -4).up) > 4 * rounding);  // by the largest Δ
}
