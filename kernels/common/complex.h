#pragma once

#include <cmath>

#include "kernels/common/host_device.h"

// f32 numbers that states are made of, real (float) or complex, host and device. Functions that formulas for
// both need are given for both, so that a formula is written once. std::complex does not work in device code.

namespace ssmbench {

/// As c64 lies in memory. Products by the schoolbook formula, without the C standard's repair of infinities.
struct alignas(8) Complex {
  float re, im;
};

SSMBENCH_HD inline Complex operator+(Complex a, Complex b) {
  return {a.re + b.re, a.im + b.im};
}
SSMBENCH_HD inline Complex operator+(Complex a, float b) {
  return {a.re + b, a.im};
}
SSMBENCH_HD inline Complex operator-(Complex a, Complex b) {
  return {a.re - b.re, a.im - b.im};
}
SSMBENCH_HD inline Complex operator*(Complex a, Complex b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
SSMBENCH_HD inline Complex operator*(float a, Complex b) {
  return {a * b.re, a * b.im};
}

SSMBENCH_HD inline float real_part(float z) {
  return z;
}
SSMBENCH_HD inline float real_part(Complex z) {
  return z.re;
}

SSMBENCH_HD inline float conjugate(float z) {
  return z;
}
SSMBENCH_HD inline Complex conjugate(Complex z) {
  return {z.re, -z.im};
}

/// |z|²
SSMBENCH_HD inline float square_magnitude(float z) {
  return z * z;
}
SSMBENCH_HD inline float square_magnitude(Complex z) {
  return z.re * z.re + z.im * z.im;
}

/// What a state adds to y/factor: Re C·h, and y/factor of the definition: 2 for complex states, which stand
/// for pairs of conjugates.
SSMBENCH_HD inline float real_product(float C, float h) {
  return C * h;
}
SSMBENCH_HD inline float real_product(Complex C, Complex h) {
  return C.re * h.re - C.im * h.im;
}
template <class Value>
inline constexpr float kOutputFactor = 1.0F;
template <>
inline constexpr float kOutputFactor<Complex> = 2.0F;

/// 1/z; at 0 not finite.
SSMBENCH_HD inline float reciprocal(float z) {
  return 1.0F / z;
}
/// Scaled by the larger part, since |z|² underflows from 1e-19 down.
SSMBENCH_HD inline Complex reciprocal(Complex z) {
  const float scale = 1.0F / fmaxf(fabsf(z.re), fabsf(z.im));
  const Complex w = scale * z;
  const float factor = scale / square_magnitude(w);
  return {factor * w.re, -factor * w.im};
}

/// e^z
SSMBENCH_HD inline float exponential(float z) {
  return expf(z);
}
/// By the half angle, exact to halve: cos y = 1 − 2·sin²(y/2), sin y = 2·sin(y/2)·cos(y/2). Accurate relative
/// to |e^z|, and the imaginary part relative to itself.
SSMBENCH_HD inline Complex exponential(Complex z) {
  float sine = 0;
  float cosine = 0;
  sincosf(0.5F * z.im, &sine, &cosine);
  const float scale = expf(z.re);
  return {scale * (1.0F - 2.0F * sine * sine), scale * (2.0F * sine * cosine)};
}

/// e^z − 1, accurate relative to its magnitude: near 0, and near the other zeros 2πik of the complex one.
SSMBENCH_HD inline float exponential_minus_1(float z) {
  return expm1f(z);
}
/// (e^x − 1)·cos y − 2·sin²(y/2) + i·e^x·sin y. The real part cancels only where the imaginary part is
/// larger.
SSMBENCH_HD inline Complex exponential_minus_1(Complex z) {
  float sine = 0;
  float cosine = 0;
  sincosf(0.5F * z.im, &sine, &cosine);
  const float drop = 2.0F * sine * sine;
  return {expm1f(z.re) * (1.0F - drop) - drop, expf(z.re) * (2.0F * sine * cosine)};
}

}  // namespace ssmbench
