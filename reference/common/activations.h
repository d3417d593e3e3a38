#pragma once

#include <algorithm>
#include <cmath>

#include "reference/common/discretization_derivative.h"
#include "reference/common/rounded.h"

// The elementwise functions of a scan and their derivatives, with what an implementation may get wrong.

namespace ssmbench {

/// σ(x) of an x that is off by error_of_x roundoffs, from e = e^-|x| (relative error 2 + |x|, its argument is
/// scaled to base 2), which never overflows. Where 1 + e^-x is beyond 2^126 an implementation's reciprocal,
/// or its quotient z/(1 + e^-z), may be 0.
inline Rounded<double> logistic(double x, double e, double error_of_x) {
  const double open = (x < 0 ? e : 1) / (1 + e);
  const double closed = (x < 0 ? 1 : e) / (1 + e);
  return {open, open,
          open * (3 + closed * (kExpError + std::abs(x)) + closed * error_of_x) + kUnderflowError};
}

/// Δ and its derivative by delta. The error of Δ: one rounding of the sum x of delta and bias, which softplus
/// takes with its slope σ(x); an exponential of relative error 2 + |x| (its argument is scaled to base 2 in
/// working precision), of weight σ(x) at most; and a log1p of relative error 2.
struct Step {
  Rounded<double> delta, slope;
};

/// With softplus, from x, e = e^-|x| and log(1 + e).
inline Step softplus_of(double x, bool has_bias, double e, double log1p_e) {
  const double error = has_bias ? std::abs(x) : 0;
  const double delta = std::max(x, 0.0) + log1p_e;
  const Rounded<double> slope = logistic(x, e, error);
  const double delta_error = 2 * delta + slope.value * (kExpError + std::abs(x) + error) + kUnderflowError;
  return {{delta, delta, delta_error}, slope};
}

inline Step step_of(double stored, double bias, bool has_bias, bool use_softplus) {
  const double x = stored + bias;
  if (!use_softplus) return {{x, std::abs(x), has_bias ? std::abs(x) : 0}, exactly(1.0)};
  const double e = std::exp(-std::abs(x));
  return softplus_of(x, has_bias, e, std::log1p(e));
}

/// silu(z) and its derivative σ·(1 + z·(1 − σ)). The exponential's relative error 2 + |z| counts with weight
/// 1 − σ(z); a sum, a quotient and two products round once each.
struct Gate {
  Rounded<double> value, slope;
};

/// From z and e = e^-|z|.
inline Gate gate_of(double z, double e) {
  const Rounded<double> open = logistic(z, e, 0);
  const Rounded<double> closed = logistic(-z, e, 0);
  const Rounded<double> x = exactly(z);
  return {x * open, open * (x * closed + 1.0)};
}
inline Gate gate_of(double z) {
  return gate_of(z, std::exp(-std::abs(z)));
}

}  // namespace ssmbench
