#pragma once

#include <algorithm>
#include <cmath>

// What the selective scan and its single step make of dt and of the gate, in fp64, with the relative errors
// of an implementation of roundoff u, in units of u.

namespace ssmbench {

inline double logistic(double x) {
  return 1 / (1 + std::exp(-x));
}

/// Δ from its stored parts, and the relative error that an implementation makes in it: one rounding of the
/// sum x (amplified by softplus' condition number |x|·σ(x)/Δ), an exponential of relative error 2 + |x| (its
/// argument is scaled to base 2 in working precision), and a log1p of relative error 2.
struct StepSize {
  double delta;
  double relative_error;
};

inline StepSize step_size(double stored, const double* bias, bool use_softplus) {
  const double x = bias != nullptr ? stored + *bias : stored;
  const double sum_error = bias != nullptr ? 1 : 0;
  if (!use_softplus) return {x, sum_error};
  // softplus(x) = max(x, 0) + log1p(e^-|x|) never overflows and is accurate to fp64 on both sides.
  const double delta = std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
  // Δ underflows to 0 only below x = -745, where the state's input is 0 as well.
  const double condition = delta > 0 ? logistic(x) / delta : 1;
  return {delta, 2 + condition * (2 + std::abs(x) * (1 + sum_error))};
}

/// A value and the bound on its error.
struct Bounded {
  double value, error;
};

/// (y·silu(z)): the gate adds a product and an exponential of relative error 2 + |z| that counts with weight
/// 1 − σ(z).
inline Bounded gated(Bounded y, double z) {
  const double open = logistic(z);
  const double factor = z * open;
  return {y.value * factor,
          std::abs(factor) * (y.error + std::abs(y.value) * (4 + (2 + std::abs(z)) * (1 - open)))};
}

}  // namespace ssmbench
