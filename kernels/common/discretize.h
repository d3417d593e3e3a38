#pragma once

#include <type_traits>

#include "base/logic_error.h"
#include "kernels/common/complex.h"
#include "kernels/common/host_device.h"
#include "model/method_id.h"

// Ā, c and c' of every method of model/method.h, real and complex, in f32, host and device.

namespace ssmbench {

/// c₀ + c₁·z + c₂·z² + …, by Horner's rule.
template <class Value, int count>
SSMBENCH_HD inline Value polynomial(const float (&c)[count], Value z) {
  Value sum = c[count - 1] * z + c[count - 2];
  for (int k = count - 3; k >= 0; --k) sum = multiply_add(sum, z, c[k]);
  return sum;
}

/// Past this real part e^z is taken as the square of e^(z/2): e^z overflows from 88.7 on, e^z/z and e^z/z²
/// later; beside e^80 the terms 1 and z are far under half an ulp.
inline constexpr float kLargeExponent = 80.0F;

// The functions φ of z are given twice: of z alone, for any z, and of z with its exponentials and 1/z, for
// kernels that have these already. The latter are finite as long as e^z is. They compute a series for small
// |z| and a quotient, and select one: a branch would keep states from overlapping. 1/z may be anything where
// the series holds.

/// φ1(z) = (e^z − 1)/z, 1 at z = 0; error relative to |φ1|.
SSMBENCH_HD inline float phi1(float z, const Exponentials<float>& e, float inverse) {
  const float near_0 = z * phi2_series(z) + 1.0F;
  const float far = (e.power - 1.0F) * inverse;
  return fabsf(z) < 1.0F ? near_0 : far;
}
/// Under 1e-4 two terms of the series are enough: the next is z²/6 < 1.7e-9.
SSMBENCH_HD inline Complex phi1(Complex z, const Exponentials<Complex>& e, Complex inverse) {
  const Complex near_0 = 0.5F * z + 1.0F;
  const Complex far = e.minus_1 * inverse;
  return square_magnitude(z) < 1e-8F ? near_0 : far;
}
template <class Value>
SSMBENCH_HD inline Value phi1(Value z) {
  const Value inverse = reciprocal(z);
  if (real_part(z) > kLargeExponent) {
    const Value half = exponential(0.5F * z);
    return half * (half * inverse);
  }
  return phi1(z, exponentials(z), inverse);
}

/// c₀ + c₁·z + c₂·z² + … of real c with two multiply-adds a term where Horner's rule has four: b_k = c_k +
/// 2·Re z·b_{k+1} − |z|²·b_{k+2}, of which c₀ + z·b₁ − |z|²·b₂ is the sum (Knuth, TAOCP vol. 2, 4.6.4). As
/// accurate where coefficients fall fast. `square`: |z|².
template <int count>
SSMBENCH_HD inline Complex real_polynomial(const float (&c)[count], Complex z, float square) {
  const float twice = z.re + z.re;
  float after = c[count - 1];
  float sum = twice * after + c[count - 2];
  for (int k = count - 3; k >= 1; --k) {
    const float next = (twice * sum + c[k]) - square * after;
    after = sum;
    sum = next;
  }
  return {(z.re * sum + c[0]) - square * after, z.im * sum};
}

/// φ2 for |z| < 1: Σ z^k/(k+2)!, whose first term left out is 2e-9.
SSMBENCH_HD inline Complex phi2_series(Complex z) {
  constexpr float kSeries[]{1.0F / 2,    1.0F / 6,     1.0F / 24,     1.0F / 120,     1.0F / 720,
                            1.0F / 5040, 1.0F / 40320, 1.0F / 362880, 1.0F / 3628800, 1.0F / 39916800};
  return real_polynomial(kSeries, z, square_magnitude(z));
}

/// φ2(z) = ((e^z − 1)/z − 1)/z, 1/2 at z = 0. The difference cancels near 0. Real: error relative to φ2.
/// Complex: relative to the larger of the two terms, (e^z − 1)/z² and 1/z, of which φ2 is far smaller only
/// around its isolated zeros (the first pair is 2.09 ± 7.46i). So e^z − 1 need not be more accurate than e^z.
template <class Value>
SSMBENCH_HD inline Value phi2(Value z, const Exponentials<Value>& e, Value inverse) {
  const Value near_0 = phi2_series(z);
  const Value far = multiply_add(e.minus_1, inverse, -1.0F) * inverse;
  return square_magnitude(z) < 1.0F ? near_0 : far;
}
template <class Value>
SSMBENCH_HD inline Value phi2(Value z) {
  const Value inverse = reciprocal(z);
  if (real_part(z) > kLargeExponent) {
    const Value root = exponential(0.5F * z) * inverse;
    return root * root;
  }
  return phi2(z, exponentials(z), inverse);
}

/// φ1(z) − φ2(z) = (e^z·(1 − 1/z) + 1/z)/z, 1/2 at z = 0, as one function: the difference of the two would
/// cancel all digits as z → −∞, where both tend to −1/z. The series is that of φ1 − φ2 = 1 + (z − 1)·φ2,
/// which loses at most 0.74/0.26 of φ2's accuracy, at −1. Accuracy as of φ2.
template <class Value>
SSMBENCH_HD inline Value phi1_minus_phi2(Value z, const Exponentials<Value>& e, Value inverse) {
  const Value near_0 = multiply_add(z + -1.0F, phi2_series(z), 1.0F);
  const Value far = multiply_add(e.power, -1.0F * inverse + 1.0F, inverse) * inverse;
  return square_magnitude(z) < 1.0F ? near_0 : far;
}
template <class Value>
SSMBENCH_HD inline Value phi1_minus_phi2(Value z) {
  const Value inverse = reciprocal(z);
  if (real_part(z) > kLargeExponent) {
    const Value root = exponential(0.5F * z) * inverse;
    return (z + -1.0F) * root * root;
  }
  return phi1_minus_phi2(z, exponentials(z), inverse);
}

/// Methods whose formulas differ in numbers only are one family, so that a kernel is compiled six times and
/// not twelve.
enum class Family { zoh, foh, taylor, bilinear, foh_exact, trapezoidal };

SSMBENCH_HD constexpr bool two_samples(Family family) {
  return family == Family::foh_exact || family == Family::trapezoidal;
}

/// The numbers in which the methods of a family differ.
struct MethodParameters {
  float taylor[3][4];  ///< family taylor: c = Σ_j Σ_k taylor[j][k]·Δ^(j+1)·z^k
  float half_sign;     ///< family bilinear: ±1/2, Ā = (1 ± z/2)/(1 ∓ z/2), c = Δ/(1 ∓ z/2)
};

inline MethodParameters method_parameters(MethodId method) {
  constexpr float k1_6 = 1.0F / 6;
  constexpr float k1_12 = 1.0F / 12;
  constexpr float k1_24 = 1.0F / 24;
  constexpr float k1_48 = 1.0F / 48;
  constexpr float k1_120 = 1.0F / 120;
  switch (method) {
    case MethodId::highorder:
      return {{{1, 0.5F}}, 0};
    case MethodId::poly:
      return {{{1, 0.5F, k1_6}}, 0};
    case MethodId::rk4:
      return {{{1, 0.5F, k1_6, k1_24}}, 0};
    case MethodId::vim_foh:
      return {{{}, {0.5F, k1_6, k1_24, k1_120}}, 0};
    case MethodId::vim_poly:
      return {{{1, 0.5F, k1_6, k1_24}, {0.25F, k1_12, k1_48}}, 0};
    case MethodId::vim_highorder:
      return {{{1, 0.5F, k1_6, k1_24}, {0.5F, k1_6, k1_24}, {k1_12, k1_48}}, 0};
    case MethodId::bilinear:
      return {{}, 0.5F};
    case MethodId::bilinear_flipped:
      return {{}, -0.5F};
    default:
      return {};
  }
}

/// Calls `call` with std::integral_constant of the method's family, and returns what it returns.
template <class Call>
auto with_family(MethodId method, const Call& call) {
  switch (method) {
    case MethodId::zoh:
      return call(std::integral_constant<Family, Family::zoh>());
    case MethodId::foh:
      return call(std::integral_constant<Family, Family::foh>());
    case MethodId::bilinear:
    case MethodId::bilinear_flipped:
      return call(std::integral_constant<Family, Family::bilinear>());
    case MethodId::poly:
    case MethodId::highorder:
    case MethodId::rk4:
    case MethodId::vim_foh:
    case MethodId::vim_poly:
    case MethodId::vim_highorder:
      return call(std::integral_constant<Family, Family::taylor>());
    case MethodId::foh_exact:
      return call(std::integral_constant<Family, Family::foh_exact>());
    case MethodId::trapezoidal:
      return call(std::integral_constant<Family, Family::trapezoidal>());
  }
  throw_logic_error("not a method");
}

/// One state's step h ← decay·h + input·B_t + previous·(B_{t-1}·u_{t-1}). `input` is c·u_t; it stays real
/// where c does not depend on A. `previous` is c', zero for methods of one sample.
template <class Value, class Input>
struct StateStep {
  Value decay;
  Input input;
  Value previous;
};

/// A state's A, with what decays take of it and with 1/A, for the methods whose φ divide by z = Δ·A: one
/// division per state and none per step.
/// 1/A is finite: where |A| is under 2^-50, 0 included, −2^-50 stands for A. That moves a state by under a
/// roundoff a step while Δ < 6e7.
template <class Value>
struct StateA {
  StateA() = default;
  SSMBENCH_HD explicit StateA(Value a)
      : A(square_magnitude(a) < 0x1p-100F ? Value{} + -0x1p-50F : a),
        rate(decay_rate(A)),
        inverse(reciprocal(A)) {}

  Value A;
  Value rate;
  Value inverse;
};

/// A channel's step of size Δ with input u: what all of its states share; called with A it gives a state's
/// step.
template <Family family>
class Step {
 public:
  SSMBENCH_HD Step(const MethodParameters& method, float delta, float u)
      : delta_(delta), u_(u), gain_(delta * u), half_sign_(method.half_sign) {
    if constexpr (family == Family::taylor) {
      const auto& c = method.taylor;
      for (int k = 0; k < 4; ++k) taylor_[k] = gain_ * (c[0][k] + delta * (c[1][k] + delta * c[2][k]));
    }
    if constexpr (family == Family::foh_exact) inverse_delta_ = reciprocal(delta);
  }

  template <class Value>
  SSMBENCH_HD auto operator()(const StateA<Value>& state) const {
    const Value z = delta_ * state.A;
    if constexpr (family == Family::bilinear) {
      const Value w = half_sign_ * z;
      const Value inverse = reciprocal(-1.0F * w + 1.0F);
      return StateStep<Value, Value>{(w + 1.0F) * inverse, gain_ * inverse, {}};
    } else if constexpr (family == Family::zoh) {
      return StateStep<Value, float>{decay(delta_, state.rate), gain_, {}};
    } else if constexpr (family == Family::taylor) {
      return StateStep<Value, Value>{decay(delta_, state.rate), polynomial(taylor_, z), {}};
    } else if constexpr (family == Family::trapezoidal) {
      const Value e = decay(delta_, state.rate);
      return StateStep<Value, float>{e, 0.5F * gain_, (0.5F * delta_) * e};
    } else if constexpr (family == Family::foh) {  // Δ·φ1(Δ·A) = (e^z − 1)/A
      const Exponentials<Value> e = exponentials(z);
      return StateStep<Value, Value>{e.power, (u_ * state.inverse) * e.minus_1, {}};
    } else {
      const Exponentials<Value> e = far_exponentials(z, state.rate);
      const Value inverse = inverse_delta_ * state.inverse;
      return StateStep<Value, Value>{e.power, gain_ * phi2(z, e, inverse),
                                     delta_ * phi1_minus_phi2(z, e, inverse)};
    }
  }

 private:
  /// Those of z = Δ·A for φ2 and φ1 − φ2, which need them for |z| ≥ 1. A complex e^z takes fewer instructions
  /// by the rate of A, and e^z − 1 is then as accurate as has to be.
  SSMBENCH_HD static Exponentials<float> far_exponentials(float z, float /*rate*/) { return exponentials(z); }
  SSMBENCH_HD Exponentials<Complex> far_exponentials(Complex /*z*/, Complex rate) const {
    const Complex power = decay(delta_, rate);
    return {power, power + -1.0F};
  }

  float delta_;
  float u_;
  float gain_;
  float half_sign_;
  float inverse_delta_ = 0;
  float taylor_[4] = {};
};

}  // namespace ssmbench
