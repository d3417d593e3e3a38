#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace ssmbench {

/// A number of the fp64 reference together with what an implementation may get wrong about it: running error
/// analysis (Wilkinson; Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., section 3.3), to
/// first order.
///   value      exact to fp64
///   magnitude  the same expression on absolute values: at least |value|, more where terms cancel. Every rounding
///              is charged at the magnitude, so that the bound holds for re-associated and chunked orders too
///   error      bound on |computed − value| in units of the implementation's roundoff
/// T is double or std::complex<double>; errors of complex numbers are bounds on the modulus.
template <class T>
struct Rounded {
  T value{};
  double magnitude = 0;
  double error = 0;
};

template <class T>
inline constexpr bool is_complex = !std::is_floating_point_v<T>;

/// What may become 0 because it is below the smallest normal f32, in roundoffs of f32. Products,
/// exponentials, logistic functions and steps are charged with it where they are made: later factors may be
/// large.
inline constexpr double kUnderflowError = 0x1p-126 / 0x1p-24;
/// The same relative to a number: 1 at most, since nothing is lost but the number.
inline double relative_underflow_error(double number) {
  return std::min(0x1p24, kUnderflowError / number);
}

/// A product of complex numbers in rounded arithmetic is off by at most √5 roundoffs (Brent, Percival &
/// Zimmermann, "Error bounds on complex floating-point multiplication", 2007), a quotient by some 6.
template <class T>
inline constexpr double kProductError = is_complex<T> ? 2.2360679774997896964 : 1;
template <class T>
inline constexpr double kQuotientError = is_complex<T> ? 6 : 1;

template <class T>
Rounded<T> exactly(T value) {
  return {value, std::abs(value), 0};
}

/// A number without error, for loops in which multiplying its error would cost: products with it have none of
/// those terms. A compiler may not leave them out, since 0·∞ is not 0.
template <class T>
struct Unrounded {
  T value{};
  double magnitude = 0;

  Unrounded() = default;
  explicit Unrounded(T number) : value(number), magnitude(std::abs(number)) {}
  Unrounded(T number, double size) : value(number), magnitude(size) {}
};

inline Rounded<double> operator*(const Rounded<double>& a, const Rounded<double>& b) {
  const double magnitude = a.magnitude * b.magnitude;
  return {a.value * b.value, magnitude,
          a.error * b.magnitude + a.magnitude * b.error + magnitude + kUnderflowError};
}

template <class T>
requires is_complex<T> Rounded<T>
operator*(const Rounded<T>& a, const Rounded<T>& b) {
  const double magnitude = a.magnitude * b.magnitude;
  return {a.value * b.value, magnitude,
          a.error * b.magnitude + a.magnitude * b.error + kProductError<T> * magnitude + kUnderflowError};
}

template <class T>
requires is_complex<T> Rounded<T>
operator*(const Rounded<double>& a, const Rounded<T>& b) {
  const double magnitude = a.magnitude * b.magnitude;
  return {a.value * b.value, magnitude,
          a.error * b.magnitude + a.magnitude * b.error + magnitude + kUnderflowError};
}

template <class T>
Rounded<T> operator+(const Rounded<T>& a, const Rounded<T>& b) {
  const double magnitude = a.magnitude + b.magnitude;
  return {a.value + b.value, magnitude, a.error + b.error + magnitude};
}

template <class T>
Rounded<T> operator*(const Unrounded<T>& a, const Unrounded<T>& b) {
  const double magnitude = a.magnitude * b.magnitude;
  return {a.value * b.value, magnitude, kProductError<T> * magnitude + kUnderflowError};
}
template <class T>
requires is_complex<T> Rounded<T>
operator*(const Unrounded<double>& a, const Unrounded<T>& b) {
  const double magnitude = a.magnitude * b.magnitude;
  return {a.value * b.value, magnitude, magnitude + kUnderflowError};
}
template <class T>
Rounded<T> operator*(const Rounded<T>& a, const Unrounded<T>& b) {
  const double magnitude = a.magnitude * b.magnitude;
  return {a.value * b.value, magnitude,
          a.error * b.magnitude + kProductError<T> * magnitude + kUnderflowError};
}
template <class T>
requires is_complex<T> Rounded<T>
operator*(const Rounded<double>& a, const Unrounded<T>& b) {
  const double magnitude = a.magnitude * b.magnitude;
  return {a.value * b.value, magnitude, a.error * b.magnitude + magnitude + kUnderflowError};
}
template <class T>
Rounded<T> operator*(const Unrounded<T>& a, const Rounded<T>& b) {
  return b * a;
}
template <class T>
requires is_complex<T> Rounded<T>
operator*(const Unrounded<double>& a, const Rounded<T>& b) {
  const double magnitude = a.magnitude * b.magnitude;
  return {a.value * b.value, magnitude, a.magnitude * b.error + magnitude + kUnderflowError};
}

/// An exact constant is added or multiplied with.
template <class T>
Rounded<T> operator+(const Rounded<T>& a, double b) {
  const double magnitude = a.magnitude + std::abs(b);
  return {a.value + b, magnitude, a.error + magnitude};
}
template <class T>
Rounded<T> operator*(double a, const Rounded<T>& b) {
  const double magnitude = std::abs(a) * b.magnitude;
  return {a * b.value, magnitude, std::abs(a) * b.error + magnitude + kUnderflowError};
}

/// Where the magnitude is beyond f32 an implementation may overflow, and nothing can be said: the error is
/// infinite.
template <class T>
Rounded<T> within_f32(Rounded<T> a) {
  const bool fits = a.magnitude <= std::numeric_limits<float>::max();
  a.error = fits ? a.error : std::numeric_limits<double>::infinity();
  return a;
}

/// |x| or, without the root of a complex one, a little more.
inline double size_of(double x) {
  return std::abs(x);
}
inline double size_of(const std::complex<double>& x) {
  return std::abs(x.real()) + std::abs(x.imag());
}

/// By a power of two, which rounds nothing.
template <class T>
Rounded<T> scaled(double power, const Rounded<T>& a) {
  return {power * a.value, power * a.magnitude, power * a.error};
}

template <class T>
Rounded<T> reciprocal(const Rounded<T>& a) {
  const double inverse = 1 / std::abs(a.value);
  return {1.0 / a.value, inverse, inverse * (inverse * a.error + kQuotientError<T>)};
}

inline Rounded<double> conj(const Rounded<double>& a) {
  return a;
}
template <class T>
requires is_complex<T> Rounded<T> conj(const Rounded<T>& a) {
  return {std::conj(a.value), a.magnitude, a.error};
}

inline Unrounded<double> conj(const Unrounded<double>& a) {
  return a;
}
template <class T>
requires is_complex<T> Unrounded<T> conj(const Unrounded<T>& a) {
  return {std::conj(a.value), a.magnitude};
}

inline Rounded<double> real(const Rounded<double>& a) {
  return a;
}
template <class T>
requires is_complex<T> Rounded<double> real(const Rounded<T>& a) {
  return {a.value.real(), a.magnitude, a.error};
}

/// Independent errors e add up to λ·√Σe² where that is less than Σe (Higham & Mary, "A New Approach to
/// Probabilistic Rounding Error Analysis", 2019). λ = 4 leaves room for terms whose errors are alike because
/// they are neighbours in time.
inline constexpr double kSpread = 4;
/// Relative errors that all terms of a sum share, such as that of a rounded constant, show in proportion to
/// the sum.
inline constexpr double kSharedError = 16;

/// A sum of n terms of total magnitude m, in any order. Adding them up is off by about √n·m; kSpread and
/// kSharedError say what their own errors add up to.
template <class T>
struct Sum {
  Rounded<T> total;
  double squared_errors = 0;

  /// `weight`: of the term's squared error, more than 1 where errors of as many neighbours are alike.
  void add(const Rounded<T>& term, double weight = 1) {
    total.value += term.value;
    total.magnitude += term.magnitude;
    total.error += term.error;
    squared_errors += weight * term.error * term.error;
  }
  void add(const Sum& part) {
    total.value += part.total.value;
    total.magnitude += part.total.magnitude;
    total.error += part.total.error;
    squared_errors += part.squared_errors;
  }
  Rounded<T> over(std::int64_t terms) const {
    const double of_terms =
        std::min(total.error, kSpread * std::sqrt(squared_errors) + kSharedError * std::abs(total.value));
    return within_f32(Rounded<T>{total.value, total.magnitude,
                                 of_terms + (1 + std::sqrt(static_cast<double>(terms))) * total.magnitude});
  }
};

}  // namespace ssmbench
