#pragma once

#include <cmath>

#include "kernels/common/host_device.h"
#include "kernels/common/scalar_math.h"

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

/// a·b + c, in fused multiply-adds where the hardware has them: a sum of products would take one more
/// addition.
SSMBENCH_HD inline float multiply_add(float a, float b, float c) {
  return a * b + c;
}
SSMBENCH_HD inline Complex multiply_add(float a, Complex b, Complex c) {
  return {a * b.re + c.re, a * b.im + c.im};
}
SSMBENCH_HD inline Complex multiply_add(Complex a, Complex b, Complex c) {
  return {(a.re * b.re + c.re) - a.im * b.im, (a.re * b.im + c.im) + a.im * b.re};
}
SSMBENCH_HD inline Complex multiply_add(Complex a, Complex b, float c) {
  return {(a.re * b.re + c) - a.im * b.im, a.re * b.im + a.im * b.re};
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

/// φ2(x) = (e^x − 1 − x)/x² for |x| < 1: the polynomial of degree 7 with the least relative error, 0.2 of a
/// roundoff with these coefficients, that is exact at 0.
SSMBENCH_HD inline float phi2_series(float x) {
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

/// e^z = 2^n·e^r, r = z − n·ln 2 in ±0.35, ln 2 as the sum of two floats. e^r − 1 by a polynomial of least
/// relative error, 0.26 of a roundoff, serves both results: no branch, no selection. From e^88.4 on r is up
/// to 0.7, where e^r has an error of 1e-5: n stays where 2^n is finite. For finite z.
SSMBENCH_HD inline Exponentials<float> exponentials(float z) {
  constexpr float kRound = 12582912;  // 1.5 · 2^23: adding it rounds to a whole number
  const float n = fminf((z * kLog2E + kRound) - kRound, 127.0F);
  const float r = (z - n * 0x1.62e4p-1F) - n * 0x1.7f7d1cp-20F;
  const float series =
      0.5F + r * (0x1.5554b0p-3F + r * (0x1.555486p-5F + r * (0x1.122838p-7F + r * 0x1.6d9956p-10F)));
  const float minus_1 = r + r * r * series;
  const float scale = exp2_approximate(n);
  return {scale * minus_1 + scale, scale * minus_1 + (scale - 1.0F)};
}

/// sin x and cos x, or both of them with the other sign: products of two are the same.
struct SineCosine {
  float sine, cosine;
};
/// From r = x − kπ in [−π/2, π/2], π as the sum of three floats, which leaves r with an error relative to
/// itself also next to the multiples of π; then polynomials of least error in r², 0.2 of a roundoff. Unlike
/// sincosf without a branch, which would keep states from overlapping. From 1e5 on k may be the multiple next
/// to the nearest, and the polynomials lose some digits, far fewer than rounding x has lost already. Past
/// 2^23, where neighbouring floats are 1 apart, the multiple of π next to x is as good as any; NaN for
/// infinities.
SSMBENCH_HD inline SineCosine sine_cosine_up_to_sign(float x) {
  const float k = rintf(x * 0x1.45f306p-2F);
  float r = fmaf(-k, 0x1.921fb6p+1F, x);
  r = fmaf(-k, -0x1.777a5cp-24F, r);
  r = fmaf(-k, -0x1.ee59dap-49F, r);
  r = fabsf(x) < 0x1p23F ? r : x - x;
  const float s = r * r;
  const float sine = -0x1.55554cp-3F + s * (0x1.110ed2p-7F + s * (-0x1.9f6fa8p-13F + s * 0x1.5db8cep-19F));
  const float cosine = 0x1.555550p-5F + s * (-0x1.6c149ap-10F + s * (0x1.9f8f14p-16F + s * -0x1.193d5ap-22F));
  return {r + r * s * sine, 1.0F + s * (-0.5F + s * cosine)};
}

/// sin y and 1 − cos y, by the half angle, which is exact to halve: 2·sin(y/2)·cos(y/2) and 2·sin²(y/2).
struct Rotation {
  SSMBENCH_HD explicit Rotation(float y) {
    const SineCosine half = sine_cosine_up_to_sign(0.5F * y);
    drop = 2.0F * half.sine * half.sine;
    sine = 2.0F * half.sine * half.cosine;
  }
  float drop, sine;  ///< drop: 1 − cos y
};

/// e^z is accurate relative to |e^z|. e^z − 1 is (e^x − 1)·cos y − 2·sin²(y/2) + i·e^x·sin y, accurate near
/// its other zeros 2πik too: the real part cancels only where the imaginary part is larger.
SSMBENCH_HD inline Exponentials<Complex> exponentials(Complex z) {
  const Rotation turn(z.im);
  const Exponentials<float> growth = exponentials(z.re);
  const float imaginary = growth.power * turn.sine;
  return {{growth.power * (1.0F - turn.drop), imaginary},
          {growth.minus_1 * (1.0F - turn.drop) - turn.drop, imaginary}};
}

/// e^z where e^z − 1 is not needed.
SSMBENCH_HD inline float exponential(float z) {
  return expf(z);
}
SSMBENCH_HD inline Complex exponential(Complex z) {
  const Rotation turn(z.im);
  const float growth = expf(z.re);
  return {growth * (1.0F - turn.drop), growth * turn.sine};
}

/// What decay() takes of A: itself or, of complex ones, the real part times log2(e) and the imaginary one in
/// turns.
SSMBENCH_HD inline float decay_rate(float A) {
  return A;
}
SSMBENCH_HD inline Complex decay_rate(Complex A) {
  return {A.re * kLog2E, fmaf(A.im, 0x1.45f306p-3F, A.im * 0x1.b93910p-28F)};  // 1/(2π) as a sum
}

/// e^(Δ·A), `rate` that of A.
SSMBENCH_HD inline float decay(float delta, float rate) {
  return expf(delta * rate);
}
/// In turns the angle is reduced without an error: Δ·rate − k is exact, and |.| ≤ ½ but where a roundoff of
/// Δ·rate is more than that, when any angle is as good. Then 2·sin and cos of half the angle, whose
/// polynomials have errors of ½ and 0.02 of a roundoff. 23 instructions.
SSMBENCH_HD inline Complex decay(float delta, Complex rate) {
  float turns = fmaf(delta, rate.im, -rintf(delta * rate.im));
  turns = fabsf(turns) > 0.75F ? 0.0F : turns;  // NaN stays
  const float s = turns * turns;
  const float twice_sine =
      turns *
      fmaf(s, fmaf(s, fmaf(s, fmaf(s, 0x1.407946p-3F, -0x1.328002p+0F), 0x1.466b26p+2F), -0x1.4abbd8p+3F),
           0x1.921fb6p+2F);
  const float cosine = fmaf(
      s,
      fmaf(s, fmaf(s, fmaf(s, fmaf(s, -0x1.8c0b52p-6F, 0x1.e0dbdep-3F), -0x1.55ce5cp+0F), 0x1.03c1d8p+2F),
           -0x1.3bd3ccp+2F),
      1.0F);
  const float growth = exp2_approximate(exponent_of(delta, rate.re));
  return {growth * fmaf(-0.5F * twice_sine, twice_sine, 1.0F), growth * (twice_sine * cosine)};
}

}  // namespace ssmbench
