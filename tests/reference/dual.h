#pragma once

#include <cmath>

// Numbers to check derivatives with: dual numbers for forward mode, and complex numbers over them
// (std::complex is for floating-point types only).

namespace ssmbench::test {

/// value + slope·ε with ε² = 0: arithmetic carries the derivative in one direction along, exactly.
struct Dual {
  double value = 0;
  double slope = 0;

  Dual() = default;
  Dual(double constant) : value(constant) {}  // NOLINT(google-explicit-constructor): constants mix in
  Dual(double v, double s) : value(v), slope(s) {}
};

inline Dual operator+(Dual a, Dual b) {
  return {a.value + b.value, a.slope + b.slope};
}
inline Dual operator-(Dual a, Dual b) {
  return {a.value - b.value, a.slope - b.slope};
}
inline Dual operator*(Dual a, Dual b) {
  return {a.value * b.value, a.slope * b.value + a.value * b.slope};
}
inline Dual operator/(Dual a, Dual b) {
  const double q = a.value / b.value;
  return {q, (a.slope - q * b.slope) / b.value};
}
inline Dual exp(Dual a) {
  const double e = std::exp(a.value);
  return {e, e * a.slope};
}
inline Dual log(Dual a) {
  return {std::log(a.value), a.slope / a.value};
}
inline Dual cos(Dual a) {
  return {std::cos(a.value), -std::sin(a.value) * a.slope};
}
inline Dual sin(Dual a) {
  return {std::sin(a.value), std::cos(a.value) * a.slope};
}
inline Dual tanh(Dual a) {
  const double t = std::tanh(a.value);
  return {t, (1 - t * t) * a.slope};
}
inline Dual sqrt(Dual a) {
  const double root = std::sqrt(a.value);
  return {root, a.slope / (2 * root)};
}

/// re + i·im over any real number R.
template <class R>
struct Complex {
  R re{};
  R im{};

  Complex() = default;
  Complex(R real_part, R imaginary_part = R(0)) : re(real_part), im(imaginary_part) {}  // NOLINT
};

template <class R>
Complex<R> operator+(Complex<R> a, Complex<R> b) {
  return {a.re + b.re, a.im + b.im};
}
template <class R>
Complex<R> operator-(Complex<R> a, Complex<R> b) {
  return {a.re - b.re, a.im - b.im};
}
template <class R>
Complex<R> operator*(Complex<R> a, Complex<R> b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
template <class R>
Complex<R> operator/(Complex<R> a, Complex<R> b) {
  const R norm = b.re * b.re + b.im * b.im;
  return {(a.re * b.re + a.im * b.im) / norm, (a.im * b.re - a.re * b.im) / norm};
}
template <class R>
Complex<R> exp(Complex<R> a) {
  using std::cos;
  using std::exp;
  using std::sin;
  const R scale = exp(a.re);
  return {scale * cos(a.im), scale * sin(a.im)};
}

}  // namespace ssmbench::test
