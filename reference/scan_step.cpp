#include "reference/scan_step.h"

#include <cmath>
#include <limits>

#include "reference/activations.h"

namespace ssmbench {

StepSize step_size(double stored, const double* bias, bool use_softplus) {
  const Rounded<double> delta =
      step_of(stored, bias != nullptr ? *bias : 0, bias != nullptr, use_softplus).delta;
  return {delta.value, delta.value == 0 ? 0 : delta.error / std::abs(delta.value)};
}

BoundedValue scan_output(StateSum y, std::int64_t dstate, const double* skip, const double* gate) {
  if (skip != nullptr) {
    y.value += *skip;
    y.magnitude += std::abs(*skip);
  }
  // 1 for each product's own rounding
  double error = y.error + (2 + std::sqrt(static_cast<double>(dstate))) * y.magnitude;
  // A small gate may follow what overflowed.
  if (!(y.magnitude <= std::numeric_limits<float>::max())) error = std::numeric_limits<double>::infinity();
  if (gate == nullptr) return {y.value, error, y.response};
  const Rounded<double> factor = gate_of(*gate).value;
  return {y.value * factor.value, std::abs(factor.value) * error + std::abs(y.value) * factor.error,
          y.response * factor.value};
}

}  // namespace ssmbench
