#include "reference/selective_state_update/stored_row.h"

#include <algorithm>
#include <cmath>

namespace ssmbench {
namespace {

constexpr double kRoundingsOfScale = 3;  // Q/a, its inverse, and room for their being first-order
constexpr double kRoundingsOfQuotient = 4;
constexpr double kCoarsestRoundoff = 0x1p-7;  // twice that of bf16

}  // namespace

float step_around(double h, double error, double scale, DType dtype) {
  const double most = 2 * unit_roundoff(DType::f32) * error;
  return static_cast<float>(scale * ulp_at((std::abs(h) + most) / scale, dtype));
}

ScaledRow scaled_row(const StateRow& row, std::int64_t dstate, DType dtype) {
  double largest = 0;
  double magnitude = 0;
  double error = 0;
  bool is_finite = true;
  for (std::int64_t n = 0; n < dstate; ++n) {
    largest = std::max(largest, std::abs(row.value[n]));
    magnitude = std::max(magnitude, row.magnitude[n]);
    error = std::max(error, row.error[n]);
    is_finite = is_finite && std::isfinite(row.value[n]) && std::isfinite(row.error[n]);
  }
  ScaledRow scaled{.scale = 1, .scale_bound = 0, .step = {}, .bound = {}};
  if (!is_finite || largest > std::numeric_limits<float>::max()) {
    scaled.scale_bound = kNoBound;
    scaled.step.fill(1);
    scaled.bound.fill(kNoBound);
    return scaled;
  }
  double scale_error = 0;
  if (magnitude > 0) {
    const double range = largest_in_scale(dtype);
    if (largest > 0) scaled.scale = largest / range;
    scale_error = error / range + kRoundingsOfScale * scaled.scale;
    scaled.scale_bound = largest > kCoarsestRoundoff * error ? static_cast<float>(scale_error) : kNoBound;
  }
  for (std::int64_t n = 0; n < dstate; ++n) {
    scaled.step[n] = step_around(row.value[n], row.error[n], scaled.scale, dtype);
    scaled.bound[n] = static_cast<float>(row.error[n] + kRoundingsOfQuotient * std::abs(row.value[n]) +
                                         scaled.step[n] / scaled.scale * scale_error);
  }
  return scaled;
}

}  // namespace ssmbench
