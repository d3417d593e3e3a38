#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "reference/common/rounded.h"

// What surrounds the recurrence of a selective scan, one (b, d, t) at a time, each with its error bound.

namespace ssmbench {

/// Δ, and the relative error that an implementation of roundoff u makes in it, in units of u.
struct StepSize {
  double delta;
  double relative_error;
};

/// From its stored parts; the error is that of step_of (reference/common/activations.h). `bias` may be null.
StepSize step_size(double stored, const double* bias, bool use_softplus);

/// y = Σ_n C·h: its value, the same sum on absolute values, the error that comes with the states, and what a
/// relative error of 1 in every decay would do.
struct StateSum {
  double value, magnitude, error;
  double response = 0;
};

struct BoundedValue {
  double value, error;
  double response = 0;  ///< as in StateSum
};

/// Roundings of y + D·u: adding up the N products and D·u, in any order, makes an error of some √N + 1
/// roundings of the sum of their magnitudes (Higham & Mary, "A New Approach to Probabilistic Rounding Error
/// Analysis", 2019; the bound that cannot be exceeded has N), and each product one: a kernel that starts from
/// D·u, as mamba_ssm's does, rounds every small product at the size of D·u.
inline double roundings_of_output(std::int64_t dstate) {
  return 2 + std::sqrt(static_cast<double>(dstate));
}

/// out = (y + D·u)·silu(z), and its bound. `skip` is D·u, `gate` is silu(z) as gate_of gives it
/// (reference/common/activations.h); null where the term is absent.
inline BoundedValue scan_output(StateSum y, double roundings, const double* skip,
                                const Rounded<double>* gate) {
  if (skip != nullptr) {
    y.value += *skip;
    y.magnitude += std::abs(*skip);
  }
  double error = y.error + roundings * (y.magnitude + roundings * kUnderflowError);
  // A small gate may follow what overflowed.
  if (!(y.magnitude <= std::numeric_limits<float>::max())) error = std::numeric_limits<double>::infinity();
  if (gate == nullptr) return {y.value, error, y.response};
  return {y.value * gate->value, std::abs(gate->value) * error + std::abs(y.value) * gate->error,
          y.response * gate->value};
}

}  // namespace ssmbench
