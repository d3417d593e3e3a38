#include "kernels/ssd_chunk_scan/delta.h"

#include <cmath>
#include <limits>

#include "catch.h"

using namespace ssmbench;

namespace {

SsdInputs step_inputs(bool softplus, float low, float high, const float* bias) {
  SsdInputs in{};
  in.dt_softplus = softplus;
  in.dt_low = low;
  in.dt_high = high;
  in.dt_bias = bias;
  return in;
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

TEST_CASE("SSD step size: softplus of dt + dt_bias, and its slope") {
  const float bias[] = {0.25F, -1.5F};
  const SsdInputs in = step_inputs(true, 0.0F, kInfinity, bias);
  for (std::int64_t head = 0; head < 2; ++head)
    for (float dt = -30.0F; dt <= 30.0F; dt += 0.37F) {
      CAPTURE(head, dt);
      const double raw = static_cast<double>(dt + bias[head]);
      const ValueSlope delta = step_size_slope(in, head, dt);
      CHECK(std::abs(delta.value / std::log1p(std::exp(raw)) - 1) < 3e-7);
      CHECK(std::abs(delta.slope * (1 + std::exp(-raw)) - 1) < 3e-7);
    }
  CHECK(step_size_slope(in, 0, -200.0F).slope == 0.0F);
  CHECK(step_size_slope(in, 0, 200.0F).slope == 1.0F);
}

TEST_CASE("SSD step size: dt_limit cuts the value and the slope") {
  const SsdInputs in = step_inputs(false, 0.1F, 0.5F, nullptr);
  for (const auto& [dt, value, slope] : {
           std::tuple{0.05F, 0.1F, 0.0F},
           std::tuple{0.1F, 0.1F, 1.0F},  // the bounds themselves are inside
           std::tuple{0.3F, 0.3F, 1.0F},
           std::tuple{0.5F, 0.5F, 1.0F},
           std::tuple{0.6F, 0.5F, 0.0F},
       }) {
    CAPTURE(dt);
    CHECK(step_size_slope(in, 0, dt).value == value);
    CHECK(step_size_slope(in, 0, dt).slope == slope);
  }
}
