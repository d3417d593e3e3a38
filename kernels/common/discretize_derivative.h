#pragma once

#include "kernels/common/complex.h"
#include "kernels/common/discretize.h"
#include "kernels/common/host_device.h"

// Ā, c and c' of every method of model/method.h with their derivatives by Δ and by A, real and complex, in
// f32, host and device: what a backward pass takes where a forward pass takes kernels/common/discretize.h.

namespace ssmbench {

/// φ1(z) = (e^z − 1)/z, φ2(z) = (e^z − 1 − z)/z² and their derivatives. Related by φ1 = φ1' + φ2 and
/// φ1' = φ1'' + φ2'.
template <class Value>
struct PhiFunctions {
  Value phi1, phi1_slope, phi1_curvature, phi2, phi2_slope;
};

/// All five at z; e is e^z. What the caller does not use costs nothing. Real z: error relative to each.
/// Complex z: relative to its value at Re z, where it is largest; they have zeros.
///
/// Above |z| = 3 the closed forms, by e^z and 1/z, in an order that overflows with e^z only; none of the
/// differences loses more than two bits for real z. Below, the odd and even parts about the middle, w = z/2:
///   φ1 = e^w·(sinh w)/w,   φ2' = e^w·(w·cosh w − sinh w)/(2·w³)
/// as series Σ w^2k/(2k+1)! and Σ w^2k·(k+1)/(2k+3)! of positive terms, whose first terms left out are under
/// 3e-10, and the rest by the relations above.
template <class Value>
SSMBENCH_HD inline PhiFunctions<Value> phi_functions(Value z, Value e) {
  PhiFunctions<Value> phi;
  if (square_magnitude(z) < 9.0F) {
    constexpr float kOdd[]{1.0F,          1.0F / 6,        1.0F / 120,       1.0F / 5040,
                           1.0F / 362880, 1.0F / 39916800, 1.0F / 6227020800};
    constexpr float kEven[]{1.0F / 6,       1.0F / 60,         1.0F / 1680,        1.0F / 90720,
                            1.0F / 7983360, 1.0F / 1037836800, 1.0F / 186810624e3F};
    const Value w = 0.5F * z;
    const Value square = w * w;
    const Value middle = exponential(w);
    phi.phi1 = middle * polynomial(kOdd, square);
    phi.phi2_slope = middle * polynomial(kEven, square);
    const Value half_difference = w * phi.phi2_slope;
    phi.phi1_slope = 0.5F * phi.phi1 + half_difference;
    phi.phi2 = 0.5F * phi.phi1 - half_difference;
    phi.phi1_curvature = phi.phi1_slope - phi.phi2_slope;
    return phi;
  }
  const Value inverse = reciprocal(z);
  const Value twice = 2.0F * inverse;
  phi.phi1 = (e + -1.0F) * inverse;
  phi.phi1_slope = (e - phi.phi1) * inverse;
  phi.phi1_curvature = (e - 2.0F * phi.phi1_slope) * inverse;
  phi.phi2 = (phi.phi1 + -1.0F) * inverse;
  phi.phi2_slope = ((twice + 1.0F) - e * (twice + -1.0F)) * inverse * inverse;
  return phi;
}

/// A coefficient of the recurrence and its partial derivatives.
template <class Value>
struct StepCoefficient {
  Value value, by_delta, by_A;
};

/// One state's step h ← decay·h + input·(B_t·u_t) + previous·(B_{t-1}·u_{t-1}): Ā, c and c'. `input` stays
/// real where c does not depend on A; `previous` is zero for methods of one sample.
template <class Value, class Input>
struct StateStepDerivative {
  StepCoefficient<Value> decay;
  StepCoefficient<Input> input;
  StepCoefficient<Value> previous;
};

/// Whether c varies with A. Where it does not, input.by_A is 0, and a kernel should leave its terms out,
/// which a compiler may not.
SSMBENCH_HD constexpr bool input_varies(Family family) {
  return family != Family::zoh && family != Family::trapezoidal;
}

/// A channel's step of size Δ: what all of its states share; called with A it gives a state's coefficients.
/// Families zoh, taylor and trapezoidal take one exponential; foh and foh_exact a second one for |z| < 3;
/// bilinear a reciprocal. Beyond e^z's overflow (Re z > 88.7) not finite.
template <Family family>
class StepDerivative {
 public:
  SSMBENCH_HD StepDerivative(const MethodParameters& method, float delta)
      : delta_(delta), square_(delta * delta), half_sign_(method.half_sign) {
    if constexpr (family == Family::taylor) {
      const auto& c = method.taylor;
      for (int k = 0; k < 4; ++k) {
        const auto n = static_cast<float>(k);
        value_[k] = delta * (c[0][k] + delta * (c[1][k] + delta * c[2][k]));
        by_delta_[k] = (n + 1.0F) * c[0][k] + delta * ((n + 2.0F) * c[1][k] + delta * ((n + 3.0F) * c[2][k]));
        if (k > 0) by_A_[k - 1] = delta * (n * value_[k]);
      }
    }
  }

  template <class Value>
  SSMBENCH_HD auto operator()(Value A) const {
    const Value z = delta_ * A;
    if constexpr (family == Family::bilinear) {
      const Value w = half_sign_ * z;
      const Value inverse = reciprocal(-1.0F * w + 1.0F);
      const Value square = inverse * inverse;
      const Value slope = (2.0F * half_sign_) * square;
      return StateStepDerivative<Value, Value>{{(w + 1.0F) * inverse, A * slope, delta_ * slope},
                                               {delta_ * inverse, square, (half_sign_ * square_) * square},
                                               {}};
    } else {
      const Value e = exponential(z);
      const StepCoefficient<Value> decay{e, A * e, delta_ * e};
      if constexpr (family == Family::zoh) {
        return StateStepDerivative<Value, float>{decay, {delta_, 1.0F, 0.0F}, {}};
      } else if constexpr (family == Family::trapezoidal) {
        const Value half = 0.5F * e;
        return StateStepDerivative<Value, float>{
            decay, {0.5F * delta_, 0.5F, 0.0F}, {delta_ * half, half * (z + 1.0F), square_ * half}};
      } else if constexpr (family == Family::taylor) {
        return StateStepDerivative<Value, Value>{
            decay, {polynomial(value_, z), polynomial(by_delta_, z), polynomial(by_A_, z)}, {}};
      } else {
        const PhiFunctions<Value> phi = phi_functions(z, e);
        if constexpr (family == Family::foh)
          return StateStepDerivative<Value, Value>{
              decay, {delta_ * phi.phi1, e, square_ * phi.phi1_slope}, {}};
        else
          return StateStepDerivative<Value, Value>{
              decay,
              {delta_ * phi.phi2, phi.phi1_slope, square_ * phi.phi2_slope},
              {delta_ * phi.phi1_slope, e - phi.phi1_slope, square_ * phi.phi1_curvature}};
      }
    }
  }

 private:
  float delta_;
  float square_;
  float half_sign_;
  // Family taylor: c and its derivatives as polynomials in z.
  float value_[4] = {};
  float by_delta_[4] = {};
  float by_A_[3] = {};
};

}  // namespace ssmbench
