#include "reference/common/discretization.h"

#include <cmath>
#include <stdexcept>

#include "reference/common/rounded.h"

namespace ssmbench {
namespace {

using Complex = std::complex<double>;

double exp_minus_1(double z) {
  return std::expm1(z);
}

/// e^z − 1 with e^z = e^x·(cos y + i·sin y) and cos y = 1 − 2·sin²(y/2).
Complex exp_minus_1(Complex z) {
  const double half_sine = std::sin(z.imag() / 2);
  const double growth = std::expm1(z.real());
  return {growth * std::cos(z.imag()) - 2 * half_sine * half_sine, std::exp(z.real()) * std::sin(z.imag())};
}

/// c0 + z·(c1 + z·(c2 + z·c3))
template <class S>
S cubic(S z, double c0, double c1, double c2, double c3) {
  return c0 + z * (c1 + z * (c2 + z * c3));
}

/// Σ_k z^k/(k+2)!: 22 terms reach 2^-60 of the sum for |z| ≤ 1.
template <class S>
S phi2_series(S z) {
  S sum = 0;
  for (int k = 22; k >= 1; --k) sum = (sum + 1.0) * z / static_cast<double>(k + 2);
  return (sum + 1.0) / 2.0;
}

}  // namespace

template <class S>
S phi1(S z) {
  return z == S(0) ? S(1) : exp_minus_1(z) / z;
}

template <class S>
S phi2(S z) {
  // From |z| = 1 on e^z − 1 and z differ enough: the difference is at least 0.36·|z|.
  if (std::abs(z) <= 1) return phi2_series(z);
  return (exp_minus_1(z) / z - 1.0) / z;
}

template <class S>
S phi1_minus_phi2(S z) {
  // φ1(z) − φ2(z) = e^z·φ2(−z). Left of −1 the closed form has no cancellation, and φ2(−z) would overflow.
  if (std::real(z) < -1) return (1.0 + std::exp(z) * (z - 1.0)) / z / z;
  return std::exp(z) * phi2(-z);
}

template <class S>
Discretized<S> discretize(MethodId method, double delta, S A) {
  const S z = delta * A;
  const double d = delta;
  switch (method) {
    case MethodId::zoh:
      return {std::exp(z), d, 0};
    case MethodId::foh:
      return {std::exp(z), d * phi1(z), 0};
    case MethodId::bilinear:
      return {(1.0 + z / 2.0) / (1.0 - z / 2.0), d / (1.0 - z / 2.0), 0};
    case MethodId::bilinear_flipped:
      return {(1.0 - z / 2.0) / (1.0 + z / 2.0), d / (1.0 + z / 2.0), 0};
    case MethodId::poly:
      return {std::exp(z), d * cubic(z, 1, 1. / 2, 1. / 6, 0), 0};
    case MethodId::highorder:
      return {std::exp(z), d * cubic(z, 1, 1. / 2, 0, 0), 0};
    case MethodId::rk4:
      return {std::exp(z), d * cubic(z, 1, 1. / 2, 1. / 6, 1. / 24), 0};
    case MethodId::vim_foh:
      return {std::exp(z), d * d * cubic(z, 1. / 2, 1. / 6, 1. / 24, 1. / 120), 0};
    case MethodId::vim_poly:
      return {std::exp(z),
              d + (A / 2.0 + 1. / 4) * d * d + (A * A / 6.0 + A / 12.0) * d * d * d +
                  (A * A * A / 24.0 + A * A / 48.0) * d * d * d * d,
              0};
    case MethodId::vim_highorder:
      return {std::exp(z),
              d + (A / 2.0 + 1. / 2) * d * d + (A * A / 6.0 + A / 6.0 + 1. / 12) * d * d * d +
                  (A * A * A / 24.0 + A * A / 24.0 + A / 48.0) * d * d * d * d,
              0};
    case MethodId::foh_exact:
      return {std::exp(z), d * phi2(z), d * phi1_minus_phi2(z)};
    case MethodId::trapezoidal:
      return {std::exp(z), d / 2, d / 2 * std::exp(z)};
  }
  throw std::logic_error("unreachable");
}

namespace {

/// The error of a quotient n/q whose parts have these absolute errors.
double quotient_error(double n_error, double quotient, double q, double q_error) {
  return (n_error + quotient * q_error) / q + quotient;
}

/// The error of a polynomial in z with non-negative coefficients, whose value at |z| is `magnitude`: every
/// term has at most three factors z of relative error z_error each, and some ten roundings.
double polynomial_error(double magnitude, double z_error) {
  return magnitude * (3 * z_error + 10);
}

/// Absolute errors of φ1(z) and φ2(z), |e^z| = decay: z·φ1' = e^z − φ1 and z·φ2' = φ1 − 2·φ2, and some five
/// roundings each.
struct PhiErrors {
  double first, second;
};
template <class S>
PhiErrors phi_errors(S z, double decay, double z_error) {
  const double first = std::abs(phi1(z));
  const double second = std::abs(phi2(z));
  return {(decay + first) * z_error + 5 * first, (first + 2 * second) * z_error + 5 * (first + second)};
}

}  // namespace

template <class S>
DiscretizationError discretization_error(MethodId method, double delta, double delta_error, S A,
                                         const Discretized<S>& exact) {
  const double d = std::abs(delta);
  const double size = std::abs(delta * A);
  const double z_error = delta_error + 1;
  const double decay = std::abs(exact.decay);
  const double input = std::abs(exact.input);
  // An exponential of relative error 2.
  const double exponential = decay * (size * z_error + 2) + kUnderflowError;
  const auto taylor = [&](double magnitude) {
    return DiscretizationError{exponential,
                               polynomial_error(d * magnitude, z_error) + input * (delta_error + 1), 0};
  };
  switch (method) {
    case MethodId::zoh:
      return {exponential, input * delta_error, 0};
    case MethodId::foh: {
      const PhiErrors phi = phi_errors(delta * A, decay, z_error);
      return {exponential, d * phi.first + input * (delta_error + 1), 0};
    }
    case MethodId::bilinear:
    case MethodId::bilinear_flipped: {
      const S half = delta * A / 2.0;
      const S denominator = method == MethodId::bilinear ? 1.0 - half : 1.0 + half;
      const double q = std::abs(denominator);
      const double q_error = size / 2 * z_error + q;
      return {quotient_error(size / 2 * z_error + decay * q, decay, q, q_error),
              quotient_error(d * delta_error, input, q, q_error), 0};
    }
    case MethodId::poly:
      return taylor(cubic(size, 1, 1. / 2, 1. / 6, 0));
    case MethodId::highorder:
      return taylor(cubic(size, 1, 1. / 2, 0, 0));
    case MethodId::rk4:
      return taylor(cubic(size, 1, 1. / 2, 1. / 6, 1. / 24));
    case MethodId::vim_foh:
    case MethodId::vim_poly:
    case MethodId::vim_highorder: {
      // P(z) + Δ·Q(z) + Δ²·R(z), times Δ, with coefficients of at most these; vim_foh has Q alone.
      const double first = method == MethodId::vim_foh ? 0 : cubic(size, 1, 1. / 2, 1. / 6, 1. / 24);
      const double third = method == MethodId::vim_highorder ? cubic(size, 1. / 12, 1. / 48, 0, 0) : 0;
      const double magnitude =
          d * (first + d * cubic(size, 1. / 2, 1. / 6, 1. / 24, 1. / 120) + d * d * third);
      return {exponential, polynomial_error(magnitude, z_error) + 3 * magnitude * delta_error, 0};
    }
    case MethodId::foh_exact: {
      const PhiErrors phi = phi_errors(delta * A, decay, z_error);
      return {exponential, d * phi.second + input * (delta_error + 1),
              d * (phi.first + phi.second) + std::abs(exact.previous_input) * (delta_error + 1)};
    }
    case MethodId::trapezoidal:
      return {exponential, input * (delta_error + 1),
              d / 2 * exponential + d / 2 * decay * (delta_error + 2)};
  }
  throw std::logic_error("unreachable");
}

template double phi1(double);
template double phi2(double);
template double phi1_minus_phi2(double);
template Complex phi1(Complex);
template Complex phi2(Complex);
template Complex phi1_minus_phi2(Complex);
template Discretized<double> discretize(MethodId, double, double);
template Discretized<Complex> discretize(MethodId, double, Complex);
template DiscretizationError discretization_error(MethodId, double, double, double,
                                                  const Discretized<double>&);
template DiscretizationError discretization_error(MethodId, double, double, Complex,
                                                  const Discretized<Complex>&);

}  // namespace ssmbench
