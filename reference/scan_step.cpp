#include "reference/scan_step.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ssmbench {
namespace {

double logistic(double x) {
  return 1 / (1 + std::exp(-x));
}

}  // namespace

StepSize step_size(double stored, const double* bias, bool use_softplus) {
  const double x = bias != nullptr ? stored + *bias : stored;
  const double sum_error = bias != nullptr ? 1 : 0;
  if (!use_softplus) return {x, sum_error};
  // softplus(x) = max(x, 0) + log1p(e^-|x|) never overflows and is accurate to fp64 on both sides.
  const double delta = std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
  // Δ underflows to 0 only below x = -745, where the state's input is 0 as well.
  const double condition = delta > 0 ? logistic(x) / delta : 1;
  return {delta, 2 + condition * (2 + std::abs(x) * (1 + sum_error))};
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
  const double open = logistic(*gate);
  const double factor = *gate * open;
  return {y.value * factor,
          std::abs(factor) * (error + std::abs(y.value) * (4 + (2 + std::abs(*gate)) * (1 - open))),
          y.response * factor};
}

}  // namespace ssmbench
