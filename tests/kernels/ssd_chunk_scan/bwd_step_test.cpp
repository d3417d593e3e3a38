#include "kernels/ssd_chunk_scan/bwd_step.h"

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
      const SsdDelta delta = ssd_delta(in, head, dt);
      CHECK(std::abs(delta.value / std::log1p(std::exp(raw)) - 1) < 3e-7);
      CHECK(std::abs(delta.slope * (1 + std::exp(-raw)) - 1) < 3e-7);
    }
  CHECK(ssd_delta(in, 0, -200.0F).slope == 0.0F);
  CHECK(ssd_delta(in, 0, 200.0F).slope == 1.0F);
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
    CHECK(ssd_delta(in, 0, dt).value == value);
    CHECK(ssd_delta(in, 0, dt).slope == slope);
  }
}

TEST_CASE("SSD gate: silu and its derivative") {
  for (float z = -60.0F; z <= 60.0F; z += 0.173F) {
    CAPTURE(z);
    const double x = z;
    const double sigma = 1 / (1 + std::exp(-x));
    const double rest = 1 / (1 + std::exp(x));
    const double slope = sigma * (1 + x * rest);
    const Silu gate = silu_with_slope(z);
    CHECK(std::abs(gate.value - x * sigma) <= 4e-7 * std::abs(x * sigma));
    // 1 + z·(1 − σ) cancels near its zero.
    CHECK(std::abs(gate.slope - slope) <= 4e-7 * sigma * (1 + std::abs(x * rest)));
  }
  CHECK(silu_with_slope(0.0F).value == 0.0F);
  CHECK(silu_with_slope(0.0F).slope == 0.5F);
  CHECK(silu_with_slope(-200.0F).slope == 0.0F);
  CHECK(silu_with_slope(200.0F).slope == 1.0F);
}
