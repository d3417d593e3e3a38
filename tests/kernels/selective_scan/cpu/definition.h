#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "model/problem.h"
#include "model/tensor.h"
#include "ops/selective_scan/selective_scan.h"

namespace ssmbench {

/// A value and a first-order bound on its error in units of f32's roundoff.
struct Bounded {
  long double value = 0, error = 0;
};

/// The definition, straight from the formulas in long double, one output element after the other, with a
/// running error analysis for f32: 2 roundoffs for an exponential, 4 for log1p, 1 for every other operation.
class ScanDefinition {
 public:
  ScanDefinition(const Problem& the_problem, const TensorSet& tensors)
      : scan_(the_problem), tensors_(tensors) {}

  /// visit_out(b, d, t, expected), visit_state(b, d, n, expected).
  template <class VisitOut, class VisitState>
  void for_each(const VisitOut& visit_out, const VisitState& visit_state) const {
    for (std::int64_t b = 0; b < scan_.batch; ++b)
      for (std::int64_t d = 0; d < scan_.dim; ++d) {
        std::vector<Bounded> h(scan_.dstate);
        for (std::int64_t n = 0; n < scan_.dstate; ++n)
          if (scan_.has_initial_state) h[n].value = at("initial_state", {b, d, n});
        for (std::int64_t t = 0; t < scan_.seqlen; ++t) visit_out(b, d, t, step(b, d, t, h));
        for (std::int64_t n = 0; n < scan_.dstate; ++n) visit_state(b, d, n, h[n]);
      }
  }

 private:
  long double at(const char* name, const Shape& index) const {
    const TensorView& view = tensors_.at(name);
    std::int64_t offset = 0;
    for (std::size_t axis = 0; axis < index.size(); ++axis) offset += index[axis] * view.strides[axis];
    return load_as_double(view.data, offset, view.dtype);
  }

  long double projection(const char* name, bool variable, std::int64_t b, std::int64_t d, std::int64_t n,
                         std::int64_t t) const {
    return variable ? at(name, {b, d / (scan_.dim / scan_.groups), n, t}) : at(name, {d, n});
  }

  /// Δ; `error` is relative here.
  Bounded step_size(std::int64_t b, std::int64_t d, std::int64_t t) const {
    const long double stored = at("delta", {b, d, t});
    const long double bias = scan_.has_delta_bias ? at("delta_bias", {d}) : 0;
    const long double x = stored + bias;
    if (!scan_.delta_softplus) return {x, 1};
    return {std::log1p(std::exp(x)), 6 + std::fabs(x)};
  }

  Bounded step(std::int64_t b, std::int64_t d, std::int64_t t, std::vector<Bounded>& h) const {
    const Bounded delta = step_size(b, d, t);
    const long double u = at("u", {b, d, t});
    Bounded y;
    long double sum_of_magnitudes = 0;
    for (std::int64_t n = 0; n < scan_.dstate; ++n) {
      const long double z = delta.value * at("A", {d, n});
      const long double decay = std::exp(z);
      const long double input = delta.value * projection("B", scan_.variable_b, b, d, n, t) * u;
      const long double kept = decay * h[n].value;
      h[n].error = decay * h[n].error + std::fabs(kept) * (std::fabs(z) * (delta.error + 1) + 4) +
                   std::fabs(input) * (delta.error + 4);
      h[n].value = kept + input;
      const long double C = projection("C", scan_.variable_c, b, d, n, t);
      y.value += C * h[n].value;
      y.error += std::fabs(C) * h[n].error;
      sum_of_magnitudes += std::fabs(C * h[n].value);
    }
    const long double skip = scan_.has_D ? at("D", {d}) * u : 0;
    y.value += skip;
    y.error += (sum_of_magnitudes + std::fabs(skip)) * static_cast<long double>(scan_.dstate + 2);
    if (!scan_.has_z) return y;
    const long double z = at("z", {b, d, t});
    const long double gate = z / (1 + std::exp(-z));
    return {y.value * gate, std::fabs(gate) * (y.error + std::fabs(y.value) * 6)};
  }

  SelectiveScan scan_;
  const TensorSet& tensors_;
};

}  // namespace ssmbench
