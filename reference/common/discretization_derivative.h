#pragma once

#include <array>

#include "model/method.h"
#include "reference/common/rounded.h"

// Ā, c and c' of every method (model/method.h) with their derivatives by Δ and by A, in Rounded numbers.

namespace ssmbench {

/// A coefficient of the recurrence and its partial derivatives.
template <class T>
struct Coefficient {
  Rounded<T> value, by_delta, by_A;
};

template <class T>
struct Discretization {
  Coefficient<T> decay, input, previous_input;
};

/// f(z), f'(z) and (z·f(z))' = f + z·f', the last without the cancellation that this sum can have.
template <class T>
struct Profile {
  Rounded<T> value, slope, whole;
};

/// Implementations may take an exponential 2 roundoffs off, and the φ functions 4.
inline constexpr double kExpError = 2;
inline constexpr double kPhiError = 4;

inline double real_part(double z) {
  return z;
}
inline double real_part(std::complex<double> z) {
  return z.real();
}

template <class T>
Rounded<T> exp(const Rounded<T>& z) {
  const double magnitude = std::exp(real_part(z.value));
  return {std::exp(z.value), magnitude, magnitude * (z.error + kExpError) + kUnderflowError};
}

/// φ1, φ2 and the derivatives that gradients need, exact to a few ulp of fp64.
template <class T>
struct Phi {
  T phi1, phi1_slope, phi1_curvature, phi2, phi2_slope;
};

/// Below |z| = 1 from the series of φ3 = Σ z^k/(k+3)! by φ_k = z·φ_{k+1} + 1/k! and φ_k' = φ_k − k·φ_{k+1};
/// above by the same relations solved the other way, where none of the differences cancels for real z.
template <class T>
Phi<T> phi(T z) {
  if (std::abs(z) < 1) {
    T phi3 = 1.0 / 6;
    T term = phi3;
    for (int k = 1; k < 18; ++k) {
      term *= z / static_cast<double>(k + 3);
      phi3 += term;
    }
    const T phi2 = z * phi3 + 0.5;
    const T phi1 = z * phi2 + 1.0;
    return {phi1, phi1 - phi2, phi1 - 2.0 * phi2 + 2.0 * phi3, phi2, phi2 - 2.0 * phi3};
  }
  const T e = std::exp(z);
  const T phi1 = (e - 1.0) / z;
  const T phi1_slope = (e - phi1) / z;
  const T phi2 = (phi1 - 1.0) / z;
  return {phi1, phi1_slope, (e - 2.0 * phi1_slope) / z, phi2, (phi1_slope - phi2) / z};
}

/// Sizes of φ1, φ2 and their derivatives that errors are charged at. They are averages of e^{sz} over s in
/// [0, 1] with positive weights: no modulus is above the value at Re z. Where |z| is large because Im z is
/// they are smaller still, by the relations that make them of one another, z·φ1 = e^z − 1 and so on.
template <class T>
Phi<double> phi_sizes(T z) {
  Phi<double> at = phi(real_part(z));
  const double size = std::abs(z);
  if (!is_complex<T> || size < 1) return at;
  const double e = std::exp(real_part(z));
  at.phi1 = std::min(at.phi1, (e + 1) / size);
  at.phi1_slope = std::min(at.phi1_slope, (e + at.phi1) / size);
  at.phi1_curvature = std::min(at.phi1_curvature, (e + 2 * at.phi1_slope) / size);
  at.phi2 = std::min(at.phi2, (at.phi1 + 1) / size);
  at.phi2_slope = std::min(at.phi2_slope, (at.phi1_slope + at.phi2) / size);
  return at;
}

/// Errors are charged at `size`. Its derivative is not above it: that of an average of e^{sz} has the weights
/// times s. By the relations it may be twice as large, and an implementation that goes by them has 2
/// roundoffs of e^z, a sum and a quotient for each of the two or three relations, 8 each at most.
template <class T>
Rounded<T> phi_of(const Rounded<T>& z, T value, double size) {
  const bool by_relations = is_complex<T> && std::abs(z.value) >= 1;
  const double of_z = (by_relations ? 2 : 1) * z.error;
  return {value, size, size * (of_z + (by_relations ? 24 : kPhiError))};
}

/// Ā = f(z)
template <class T>
Coefficient<T> decay_of(const Rounded<double>& delta, const Rounded<T>& A, const Rounded<T>& value,
                        const Rounded<T>& slope) {
  return {value, A * slope, delta * slope};
}

/// c = Δ·f(z)
template <class T>
Coefficient<T> input_of(const Rounded<double>& delta, const Profile<T>& f) {
  return {delta * f.value, f.whole, delta * (delta * f.slope)};
}

/// c = Δ·Σ_j Δ^j·Σ_k p[j][k]·z^k, the form of every Taylor method.
using Taylor = std::array<std::array<double, 4>, 3>;

inline const Taylor& taylor_of(MethodId method) {
  static constexpr Taylor euler{{{1}}};
  static constexpr Taylor half{{{0.5}}};
  static constexpr Taylor poly{{{1, 1. / 2, 1. / 6}}};
  static constexpr Taylor highorder{{{1, 1. / 2}}};
  static constexpr Taylor rk4{{{1, 1. / 2, 1. / 6, 1. / 24}}};
  static constexpr Taylor vim_foh{{{}, {1. / 2, 1. / 6, 1. / 24, 1. / 120}}};
  static constexpr Taylor vim_poly{{{1, 1. / 2, 1. / 6, 1. / 24}, {1. / 4, 1. / 12, 1. / 48}}};
  static constexpr Taylor vim_highorder{
      {{1, 1. / 2, 1. / 6, 1. / 24}, {1. / 2, 1. / 6, 1. / 24}, {1. / 12, 1. / 48}}};
  switch (method) {
    case MethodId::poly:
      return poly;
    case MethodId::highorder:
      return highorder;
    case MethodId::rk4:
      return rk4;
    case MethodId::vim_foh:
      return vim_foh;
    case MethodId::vim_poly:
      return vim_poly;
    case MethodId::vim_highorder:
      return vim_highorder;
    case MethodId::trapezoidal:
      return half;
    default:
      return euler;
  }
}

/// Σ_k weight(k)·p[k + shift]·z^k; terms that are 0 cost no error.
template <class T, class Weight>
Rounded<T> polynomial(const std::array<double, 4>& p, int shift, const Rounded<T>& z, const Weight& weight) {
  Rounded<T> sum;
  for (int k = 3 - shift; k >= 0; --k) {
    if (sum.magnitude > 0) sum = sum * z;
    const double coefficient = weight(k) * p.at(k + shift);
    if (coefficient != 0) sum = sum + coefficient;
  }
  return sum;
}

template <class T>
Coefficient<T> taylor_input(MethodId method, const Rounded<double>& delta, const Rounded<T>& z) {
  Coefficient<T> c;
  Rounded<double> power = exactly(1.0);  // Δ^j
  const Taylor& rows = taylor_of(method);
  for (int j = 0; j < 3; ++j, power = power * delta) {
    const auto& p = rows[static_cast<std::size_t>(j)];
    if (p[0] == 0 && p[1] == 0) continue;
    const auto value = polynomial(p, 0, z, [](int) { return 1.0; });
    const auto by_delta = polynomial(p, 0, z, [j](int k) { return static_cast<double>(j + 1 + k); });
    const auto slope = polynomial(p, 1, z, [](int k) { return static_cast<double>(k + 1); });
    c.value = c.value + power * (delta * value);
    c.by_delta = c.by_delta + power * by_delta;
    c.by_A = c.by_A + power * (delta * (delta * slope));
  }
  return c;
}

/// Ā = (1 + s·z/2)/(1 − s·z/2), c = Δ/(1 − s·z/2), with s = 1 or −1. The roundings within Ā are charged at
/// 1 + |z|/2, once. What it decays is charged at |Ā| itself: states are multiplied by Ā and never by the
/// terms of its numerator, whose magnitudes together exceed 1 and would grow without limit from step to step.
template <class T>
Discretization<T> bilinear(double s, const Rounded<double>& delta, const Rounded<T>& A, const Rounded<T>& z) {
  const auto r = reciprocal(-0.5 * s * z + 1.0);
  const auto squared = r * r;
  auto decay = (0.5 * s * z + 1.0) * r;
  decay.magnitude = std::abs(decay.value);
  return {.decay = decay_of(delta, A, decay, s * squared),
          .input = input_of(delta, Profile<T>{r, 0.5 * s * squared, squared}),
          .previous_input = {}};
}

template <class T>
Discretization<T> discretize(MethodId method, const Rounded<double>& delta, const Rounded<T>& A) {
  const auto z = delta * A;
  if (method == MethodId::bilinear) return bilinear(1, delta, A, z);
  if (method == MethodId::bilinear_flipped) return bilinear(-1, delta, A, z);

  const auto e = exp(z);
  Discretization<T> all{.decay = decay_of(delta, A, e, e), .input = {}, .previous_input = {}};
  if (method == MethodId::foh || method == MethodId::foh_exact) {
    const Phi<T> at = phi(z.value);
    const Phi<double> top = phi_sizes(z.value);
    const auto phi1_slope = phi_of(z, at.phi1_slope, top.phi1_slope);
    if (method == MethodId::foh) {
      all.input = input_of(delta, Profile<T>{phi_of(z, at.phi1, top.phi1), phi1_slope, e});
    } else {
      all.input = input_of(delta, Profile<T>{phi_of(z, at.phi2, top.phi2),
                                             phi_of(z, at.phi2_slope, top.phi2_slope), phi1_slope});
      all.previous_input = input_of(
          delta,
          Profile<T>{phi1_slope, phi_of(z, at.phi1_curvature, top.phi1_curvature), e + -1.0 * phi1_slope});
    }
    return all;
  }
  all.input = taylor_input(method, delta, z);
  if (method == MethodId::trapezoidal) {
    const auto half = 0.5 * e;
    all.previous_input = input_of(delta, Profile<T>{half, half, (z + 1.0) * half});
  }
  return all;
}

}  // namespace ssmbench
