#include "reference/causal_conv1d/convolution.h"

#include <cmath>

namespace ssmbench {

ConvFilter filter_of(const TensorView& weight, const TensorView* bias, std::int64_t channel, bool silu) {
  ConvFilter filter{.weight = std::vector<double>(weight.shape[1]), .silu = silu};
  for (std::int64_t j = 0; j < filter.width(); ++j)
    filter.weight[j] = load_as_double(weight.data, channel * filter.width() + j, weight.dtype);
  if (bias != nullptr) filter.bias = load_as_double(bias->data, channel, bias->dtype);
  return filter;
}

Rounded<double> convolve(const ConvFilter& filter, const ConvSignal& signal, std::int64_t t) {
  const std::int64_t width = filter.width();
  Rounded<double> s{filter.bias, std::abs(filter.bias), 0};
  for (std::int64_t j = 0; j < width; ++j) {
    if (!signal.reaches(t, j, width)) continue;
    const double term = filter.weight[j] * signal.x[t + j];
    s.value += term;
    s.magnitude += std::abs(term);
  }
  s.error = static_cast<double>(width + 1) * (s.magnitude + kUnderflowError);
  return within_f32(s);
}

Gate activation(const Rounded<double>& s, bool silu) {
  if (!silu) return {s, exactly(1.0)};
  const double e = std::exp(-std::abs(s.value));
  Gate gate = gate_of(s.value, e);
  const double large = 1 / (1 + e);
  const double open = s.value < 0 ? e * large : large;  // σ(s)
  const double closed = s.value < 0 ? large : e * large;
  const double curvature = open * closed * (2 + s.value * (closed - open));
  gate.value.error += std::abs(gate.slope.value) * s.error;
  gate.slope.error += std::abs(curvature) * s.error;
  return gate;
}

}  // namespace ssmbench
