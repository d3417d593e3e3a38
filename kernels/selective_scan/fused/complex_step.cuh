#pragma once

// One step of one channel with complex states in cuda-fused's fast kernel (kernel.cuh): a class for each
// family of methods, as step.cuh has them for real ones. Host and device, so that the CPU tests cover them.

#include "kernels/common/discretize.h"
#include "kernels/selective_scan/fused/step.cuh"

namespace ssmbench::fused {

/// e^(iθ) of an angle θ in turns: sin θ, and cos θ − 1, which is accurate relative to itself.
struct Turn {
  float drop, sine;
};

/// The turn by the angle Δ·rate. In turns it is reduced without an error: Δ·rate − k is exact, and |.| ≤ ½
/// but where a roundoff of Δ·rate is more than that, when any angle is as good. Adding 1.5·2²³ rounds without
/// the MUFU, which rintf takes. Then √2·sin and √2·cos of half the angle: cos θ − 1 is −(√2·sin)², sin θ
/// their product. The polynomials have errors of 0.1 and 0.02 of a roundoff, and the floats next to √2·π and
/// √2 a product that is off by 0.002. 18 instructions.
SSMBENCH_HD inline Turn turn(float delta, float rate) {
  constexpr float kRound = 0x1.8p+23F;
  float turns = fmaf(delta, rate, kRound - fmaf(delta, rate, kRound));
  turns = fabsf(turns) > 0.75F ? 0.0F : turns;  // NaN stays
  const float s = turns * turns;
  const float sine =
      turns *
      fmaf(s, fmaf(s, fmaf(s, fmaf(s, 0x1.c2093ep-4F, -0x1.b13a34p-1F), 0x1.cd9d4ep+1F), -0x1.d3ba50p+2F),
           0x1.1c5832p+2F);
  const float cosine = fmaf(
      s,
      fmaf(s, fmaf(s, fmaf(s, fmaf(s, -0x1.1e4364p-5F, 0x1.54854cp-2F), -0x1.e36a54p+0F), 0x1.6f5a52p+2F),
           -0x1.bea5b6p+2F),
      0x1.6a09e6p+0F);
  return {-sine * sine, sine * cosine};
}

/// growth·e^(iθ)
SSMBENCH_HD inline Complex turned(float growth, const Turn& turn) {
  return {fmaf(growth, turn.drop, growth), growth * turn.sine};
}

/// e^(Δ·A), of the rate of A.
SSMBENCH_HD inline Complex turned_decay(float delta, Complex rate) {
  return turned(exp2_approximate(exponent_of(delta, rate.re)), turn(delta, rate.im));
}

/// A channel's step; `state` is what a state's A is kept as, and called with it a step gives the next h.
/// Numbers are instructions per (element, state), with the two of y = Re Σ C·h.
template <Family family>
class ComplexScanStep;

/// 30
template <>
class ComplexScanStep<Family::zoh> {
 public:
  static constexpr bool kTakesGain = true;  ///< Δ·u, not u/2
  using State = Complex;

  SSMBENCH_HD ComplexScanStep(const MethodParameters& /*method*/, float delta, float gain)
      : delta_(delta), gain_(gain) {}
  SSMBENCH_HD static State state(const MethodParameters& /*method*/, Complex A) { return decay_rate(A); }
  SSMBENCH_HD Complex operator()(const State& rate, Complex h, Complex B) const {
    return multiply_add(turned_decay(delta_, rate), h, gain_ * B);
  }

 private:
  float delta_, gain_;
};

/// c·u = G + G·Δ·(c₁ + c₂Δ + c₃Δ²) with G = Δ·u, or Δ²u/2 for vim_foh, as with real states. While |A| <
/// 2^42. 38.
template <>
class ComplexScanStep<Family::taylor> {
 public:
  static constexpr bool kTakesGain = true;
  struct State {
    Complex rate;
    Complex c[3];  ///< c₁ to c₃
  };

  SSMBENCH_HD ComplexScanStep(const MethodParameters& method, float delta, float gain)
      : delta_(delta),
        gain_(gain * fmaf(delta, (1.0F - method.taylor[0][0]) * method.taylor[1][0], method.taylor[0][0])),
        gain_delta_(gain_ * delta) {}
  SSMBENCH_HD static State state(const MethodParameters& method, Complex A) {
    const auto& c = method.taylor;
    const Complex rate = decay_rate(A);
    if (c[0][0] == 0.0F) {
      const Complex y = (1.0F / c[1][0]) * A;
      return {rate, {c[1][1] * y, c[1][2] * (A * y), c[1][3] * (A * A * y)}};
    }
    return {rate,
            {c[0][1] * A + c[1][0], (c[0][2] * A + c[1][1]) * A + c[2][0],
             ((c[0][3] * A + c[1][2]) * A + c[2][1]) * A}};
  }
  SSMBENCH_HD Complex operator()(const State& state, Complex h, Complex B) const {
    const Complex series = multiply_add(delta_, multiply_add(delta_, state.c[2], state.c[1]), state.c[0]);
    const Complex input{fmaf(gain_delta_, series.re, gain_), gain_delta_ * series.im};
    return multiply_add(turned_decay(delta_, state.rate), h, input * B);
  }

 private:
  float delta_, gain_, gain_delta_;
};

/// Ā = (1 + w)/(1 − w) and c = Δ/(1 − w), not ((1 + w)·h + Δ·u·B)/(1 − w), which overflows before h does.
/// While |Δ·A| < 2^63, past which |1 − w|² overflows. 24.
template <>
class ComplexScanStep<Family::bilinear> {
 public:
  static constexpr bool kTakesGain = true;
  using State = Complex;  ///< ±A/2

  SSMBENCH_HD ComplexScanStep(const MethodParameters& /*method*/, float delta, float gain)
      : delta_(delta), gain_(gain) {}
  SSMBENCH_HD static State state(const MethodParameters& method, Complex A) { return method.half_sign * A; }
  SSMBENCH_HD Complex operator()(const State& half_A, Complex h, Complex B) const {
    const float im = delta_ * half_A.im;
    const Complex conjugate{fmaf(-delta_, half_A.re, 1.0F), im};  // of 1 − w
    const float inverse = reciprocal_approximate(square_magnitude(conjugate));
    const Complex quotient = inverse * conjugate;  // 1/(1 − w)
    const Complex decay = Complex{fmaf(delta_, half_A.re, 1.0F), im} * quotient;
    return multiply_add(decay, h, (gain_ * quotient) * B);
  }

 private:
  float delta_, gain_;
};

/// e^z − 1 = (e^x − 1) + e^x·(cos y − 1) + i·e^x·sin y, times u/A. e^x − 1 is (e^x + 1)·tanh(x/2) near 0 and
/// a difference beyond, as with real states. 46.
template <>
class ComplexScanStep<Family::foh> {
 public:
  static constexpr bool kTakesGain = false;
  struct State {
    Complex rate;
    float c[3];  ///< of Δ, Δ³ and Δ⁵ in tanh(x/2)
    Complex inverse;
  };

  SSMBENCH_HD ComplexScanStep(const MethodParameters& /*method*/, float delta, float half_u)
      : delta_(delta), square_(delta * delta), cube_(delta * square_), u_(2.0F * half_u) {}
  SSMBENCH_HD static State state(const MethodParameters& /*method*/, Complex A) {
    constexpr float kLargest = 0x1.fffffep+127F;  // times a Δ of 0 it is 0, as infinity is not
    const StateA<Complex> kept(A);
    const auto finite = [](float x) { return fmaxf(fminf(x, kLargest), -kLargest); };
    const float half = 0.5F * kept.A.re;
    const float square = kept.rate.re * kept.rate.re;
    return {kept.rate,
            {half, finite(kHalfTanh1 * square * half), finite(kHalfTanh2 * square * square * half)},
            kept.inverse};
  }
  SSMBENCH_HD Complex operator()(const State& state, Complex h, Complex B) const {
    const float x = exponent_of(delta_, state.rate.re);
    const float growth = exp2_approximate(x);
    const float tanh = fmaf(fmaf(square_, state.c[2], state.c[1]), cube_, delta_ * state.c[0]);
    float growth_minus_1 = fmaf(tanh, growth, tanh);
    if (fabsf(x) >= kHalfTanhEnd) growth_minus_1 = growth - 1.0F;
    const Turn angle = turn(delta_, state.rate.im);
    const Complex decay = turned(growth, angle);
    const Complex minus_1{fmaf(growth, angle.drop, growth_minus_1), decay.im};
    return multiply_add(decay, h, minus_1 * (u_ * state.inverse) * B);
  }

 private:
  float delta_, square_, cube_, u_;
};

/// h ← Ā·(h + ½Δ·(u·B before)) + ½Δ·u·B. `before`, u·B/2 of the step before, becomes that of this one. 34.
template <>
class ComplexScanStep<Family::trapezoidal> {
 public:
  static constexpr bool kTakesGain = false;
  using State = Complex;

  SSMBENCH_HD ComplexScanStep(const MethodParameters& /*method*/, float delta, float half_u)
      : delta_(delta), half_u_(half_u) {}
  SSMBENCH_HD static State state(const MethodParameters& /*method*/, Complex A) { return decay_rate(A); }
  SSMBENCH_HD Complex operator()(const State& rate, Complex h, Complex B, Complex& before) const {
    const Complex input = half_u_ * B;
    const Complex decayed = multiply_add(delta_, before, h);
    before = input;
    return multiply_add(turned_decay(delta_, rate), decayed, delta_ * input);
  }

 private:
  float delta_, half_u_;
};

/// c = Δ·φ2(z) and c' = Δ·(φ1 − φ2)(z), twice each. For |z| < ½ by the series of φ2, whose first term left
/// out is 2.2e-8, and φ1 − φ2 = 1 + (z − 1)·φ2; beyond by (e^z − 1 − z)·Δ/z² and ((z − 1)·e^z + 1)·Δ/z²,
/// whose cancellation costs 4 times what e^z is off by there. 82.
template <>
class ComplexScanStep<Family::foh_exact> {
 public:
  static constexpr bool kTakesGain = false;
  struct State {
    Complex A, rate;
    Complex inverse_square;  ///< 2/A²
    float square;            ///< |A|²
    float end;               ///< the step for which |z| is ½
  };

  SSMBENCH_HD ComplexScanStep(const MethodParameters& /*method*/, float delta, float half_u)
      : delta_(delta),
        square_(delta * delta),
        twice_(2.0F * delta),
        inverse_(reciprocal_approximate(delta)),
        half_u_(half_u) {}
  SSMBENCH_HD static State state(const MethodParameters& /*method*/, Complex A) {
    const StateA<Complex> kept(A);
    return {kept.A, kept.rate, 2.0F * (kept.inverse * kept.inverse), square_magnitude(kept.A),
            0.5F / sqrtf(square_magnitude(kept.A))};
  }
  SSMBENCH_HD Complex operator()(const State& state, Complex h, Complex B, Complex& before) const {
    const Complex z = delta_ * state.A;
    const Complex decay = turned_decay(delta_, state.rate);
    const Complex z_minus_1 = z + -1.0F;
    constexpr float kPhi2[]{1.0F / 2, 1.0F / 6, 1.0F / 24, 1.0F / 120, 1.0F / 720, 1.0F / 5040, 1.0F / 40320};
    Complex input = twice_ * real_polynomial(kPhi2, z, square_ * state.square);
    Complex previous = multiply_add(z_minus_1, input, twice_);
    const Complex scale = inverse_ * state.inverse_square;  // 2Δ/z²
    const Complex far_input = ((decay + -1.0F) - z) * scale;
    const Complex far_previous = multiply_add(z_minus_1, decay, 1.0F) * scale;
    if (fabsf(delta_) >= state.end) {
      input = far_input;
      previous = far_previous;
    }
    const Complex own = half_u_ * B;
    const Complex sum = multiply_add(previous, before, input * own);
    before = own;
    return multiply_add(decay, h, sum);
  }

 private:
  float delta_, square_, twice_, inverse_, half_u_;
};

}  // namespace ssmbench::fused
