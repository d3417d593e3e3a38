#pragma once

#include <complex>

#include "model/method.h"

namespace ssmbench {

/// One step of a method, S = double or std::complex<double>:
///   h_t = decay·h_{t-1} + input·B_t·u_t + previous_input·B_{t-1}·u_{t-1}
template <class S>
struct Discretized {
  S decay;
  S input;
  S previous_input;  ///< 0 for methods of one sample
};

/// Ā, c and c' of src/model/method.h for a step delta and a (diagonal) A. At a pole of a bilinear rule the
/// IEEE result.
template <class S>
Discretized<S> discretize(MethodId method, double delta, S A);

/// How far the three may be off, in units of the roundoff of an implementation whose operations have relative
/// error at most 1 each, and whose Δ has relative error delta_error: absolute, to first order.
struct DiscretizationError {
  double decay, input, previous_input;
};

template <class S>
DiscretizationError discretization_error(MethodId method, double delta, double delta_error, S A,
                                         const Discretized<S>& exact);

/// φ1(z) = (e^z − 1)/z and φ2(z) = (e^z − 1 − z)/z², 1 and 1/2 at 0, without cancellation anywhere. Source:
/// Higham, "Functions of Matrices" (2008), section 10.7.4; for complex z accurate relative to |φ|.
template <class S>
S phi1(S z);
template <class S>
S phi2(S z);
/// φ1(z) − φ2(z) = (1 + e^z·(z − 1))/z², 1/2 at 0, without cancellation anywhere.
template <class S>
S phi1_minus_phi2(S z);

}  // namespace ssmbench
