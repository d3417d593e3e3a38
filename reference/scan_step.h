#pragma once

#include <cstdint>

// What surrounds the recurrence of a selective scan, one (b, d, t) at a time, each with its error bound.

namespace ssmbench {

/// Δ, and the relative error that an implementation of roundoff u makes in it, in units of u.
struct StepSize {
  double delta;
  double relative_error;
};

/// From its stored parts; the error is that of step_of (reference/activations.h). `bias` may be null.
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

/// out = (y + D·u)·silu(z), and its bound. `skip` is D·u, `gate` is z; null where the term is absent. Adding
/// up the N products and D·u, in any order, makes an error of some √N + 1 roundings of the sum of their
/// magnitudes (Higham & Mary, "A New Approach to Probabilistic Rounding Error Analysis", 2019; the bound that
/// cannot be exceeded has N): a kernel that starts from D·u, as mamba_ssm's does, rounds every small product
/// at the size of D·u. The gate's error is that of gate_of (reference/activations.h).
BoundedValue scan_output(StateSum y, std::int64_t dstate, const double* skip, const double* gate);

}  // namespace ssmbench
