#include "reference/selective_scan/step.h"

#include <cmath>

#include "reference/common/activations.h"

namespace ssmbench {

StepSize step_size(double stored, const double* bias, bool use_softplus) {
  const Rounded<double> delta =
      step_of(stored, bias != nullptr ? *bias : 0, bias != nullptr, use_softplus).delta;
  return {delta.value, delta.value == 0 ? 0 : delta.error / std::abs(delta.value)};
}

}  // namespace ssmbench
