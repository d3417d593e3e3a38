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

/// 1/z to a roundoff; at 0 not finite. On the GPU the hardware's approximation and a Newton step, without the
/// branches of an IEEE division, which would keep states from overlapping: |z| < 2^-126 counts as 0 there,
/// and results under 2^-126 become 0. At 0, ∞ and NaN, where the step gives NaN, the approximation is what
/// IEEE arithmetic has.
SSMBENCH_HD inline float reciprocal(float z) {
#ifdef __CUDA_ARCH__
  float approximation = 0;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(approximation) : "f"(z));
  const float error = fmaf(-z, approximation, 1.0F);
  return fabsf(error) < 1.0F ? fmaf(approximation, error, approximation) : approximation;
#else
  return 1.0F / z;
#endif
}
/// Scaled by the larger part, since |z|² underflows from 1e-19 down.
SSMBENCH_HD inline Complex reciprocal(Complex z) {
  const float scale = reciprocal(fmaxf(fabsf(z.re), fabsf(z.im)));
  const Complex w = scale * z;
  const float factor = scale * reciprocal(square_magnitude(w));
  return {factor * w.re, -factor * w.im};
}

/// φ2(x) = (e^x − 1 − x)/x² for |x| ≤ 1: the polynomial of degree 7 with the least relative error, 0.2 of a
/// roundoff with these coefficients, that is exact at 0.
SSMBENCH_HD inline float phi2_near_0(float x) {
  constexpr float kCoefficients[]{0.5F,
                                  0x1.555556p-3F,
                                  0x1.555570p-5F,
                                  0x1.1110dep-7F,
                                  0x1.6c022ep-10F,
                                  0x1.a02adcp-13F,
                                  0x1.a90566p-16F,
                                  0x1.73a89ep-19F};
  float sum = kCoefficients[7];
  for (int k = 6; k >= 0; --k) sum = sum * x + kCoefficients[k];
  return sum;
}

/// e^z and e^z − 1, which share their work.
template <class Value>
struct Exponentials {
  Value power;
  Value minus_1;  ///< accurate relative to its magnitude, near 0 too
};

/// The series for |z| < 1, since e^z − 1 would cancel there. Both sides are computed and one is selected: a
/// branch would keep states from overlapping.
SSMBENCH_HD inline Exponentials<float> exponentials(float z) {
  const float power = expf(z);
  const float near_0 = z + z * z * phi2_near_0(z);
  return {power, fabsf(z) < 1.0F ? near_0 : power - 1.0F};
}
/// By the half angle, exact to halve: cos y = 1 − 2·sin²(y/2), sin y = 2·sin(y/2)·cos(y/2). e^z is accurate
/// relative to |e^z|, its imaginary part relative to itself. e^z − 1 is (e^x − 1)·cos y − 2·sin²(y/2) +
/// i·e^x·sin y, accurate near its other zeros 2πik too: the real part cancels only where the imaginary part
/// is larger.
SSMBENCH_HD inline Exponentials<Complex> exponentials(Complex z) {
  float sine = 0;
  float cosine = 0;
  sincosf(0.5F * z.im, &sine, &cosine);
  const Exponentials<float> growth = exponentials(z.re);
  const float drop = 2.0F * sine * sine;
  const float imaginary = growth.power * (2.0F * sine * cosine);
  return {{growth.power * (1.0F - drop), imaginary}, {growth.minus_1 * (1.0F - drop) - drop, imaginary}};
}

/// e^z
template <class Value>
SSMBENCH_HD Value exponential(Value z) {
  return exponentials(z).power;
}

/// e^z − 1
template <class Value>
SSMBENCH_HD Value exponential_minus_1(Value z) {
  return exponentials(z).minus_1;
}

}  // namespace ssmbench
