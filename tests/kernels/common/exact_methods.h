#pragma once

#include <cmath>
#include <complex>
#include <initializer_list>

#include "kernels/common/complex.h"
#include "model/method.h"

// Ā, c and c' by the formulas of model/method.h in long double: 40 bits more than f32, which is what the
// formulas may lose.

namespace ssmbench::test {

using Exact = std::complex<long double>;

inline Exact exact(float z) {
  return z;
}
inline Exact exact(Complex z) {
  return {z.re, z.im};
}

inline Exact exact_exp(Exact z) {
  return std::exp(z.real()) * Exact(std::cos(z.imag()), std::sin(z.imag()));
}

/// Σ z^k/(k+m)!: φ_m. Used up to |z| = 4, where 60 terms leave 1e-45.
inline Exact phi_series(Exact z, int m) {
  Exact term = 1;
  for (int i = 1; i <= m; ++i) term /= i;
  Exact sum = 0;
  for (int k = 0; k < 60; ++k) {
    sum += term;
    term *= z / static_cast<long double>(k + m + 1);
  }
  return sum;
}
inline Exact exact_phi1(Exact z) {
  return std::abs(z) < 4 ? phi_series(z, 1) : (exact_exp(z) - 1.0L) / z;
}
inline Exact exact_phi2(Exact z) {
  return std::abs(z) < 4 ? phi_series(z, 2) : (exact_exp(z) - 1.0L - z) / (z * z);
}
inline Exact exact_difference(Exact z) {
  return std::abs(z) < 4 ? phi_series(z, 1) - phi_series(z, 2) : ((z - 1.0L) * exact_exp(z) + 1.0L) / (z * z);
}

struct ExactStep {
  Exact decay, input, previous;
  long double input_scale = 0;  ///< sum of the terms' magnitudes, where c is a sum
};

/// The definition's formulas, with u = 1.
inline ExactStep exact_step(MethodId method, long double delta, Exact A) {
  const Exact z = delta * A;
  const Exact decay = exact_exp(z);
  const auto sum = [&](std::initializer_list<Exact> terms) {
    ExactStep step{decay, 0, 0, 0};
    for (const Exact& term : terms) {
      step.input += delta * term;
      step.input_scale += std::abs(delta * term);
    }
    return step;
  };
  const long double d = delta;
  switch (method) {
    case MethodId::zoh:
      return {decay, delta, 0};
    case MethodId::foh:
      return {decay, delta * exact_phi1(z), 0};
    case MethodId::bilinear:
      return {(1.0L + z / 2.0L) / (1.0L - z / 2.0L), delta / (1.0L - z / 2.0L), 0};
    case MethodId::bilinear_flipped:
      return {(1.0L - z / 2.0L) / (1.0L + z / 2.0L), delta / (1.0L + z / 2.0L), 0};
    case MethodId::poly:
      return sum({1, z / 2.0L, z * z / 6.0L});
    case MethodId::highorder:
      return sum({1, z / 2.0L});
    case MethodId::rk4:
      return sum({1, z / 2.0L, z * z / 6.0L, z * z * z / 24.0L});
    case MethodId::vim_foh:
      return sum({d / 2, d * z / 6.0L, d * z * z / 24.0L, d * z * z * z / 120.0L});
    case MethodId::vim_poly:
      return sum({1, A * d / 2.0L, d / 4, A * A * d * d / 6.0L, A * d * d / 12.0L,
                  A * A * A * d * d * d / 24.0L, A * A * d * d * d / 48.0L});
    case MethodId::vim_highorder:
      return sum({1, A * d / 2.0L, d / 2, A * A * d * d / 6.0L, A * d * d / 6.0L, d * d / 12,
                  A * A * A * d * d * d / 24.0L, A * A * d * d * d / 24.0L, A * d * d * d / 48.0L});
    case MethodId::foh_exact:
      return {decay, delta * exact_phi2(z), delta * exact_difference(z)};
    case MethodId::trapezoidal:
      return {decay, delta / 2, delta / 2 * decay};
  }
  return {};
}

}  // namespace ssmbench::test
