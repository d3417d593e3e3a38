#pragma once

// One step of one channel in cuda-fused's fast kernel (kernel.cuh): a class for each family of methods. Host
// and device, so that the CPU tests cover them.

#include "kernels/common/discretize.h"

namespace ssmbench::fused {

/// method_parameters() as the fast kernel takes them: Taylor coefficients of powers of z·log2(e).
inline MethodParameters step_parameters(MethodId method) {
  MethodParameters parameters = method_parameters(method);
  for (auto& row : parameters.taylor) {
    double power = 1;
    for (float& coefficient : row) {
      coefficient = static_cast<float>(coefficient * power);
      power *= 0.693147180559945309;
    }
  }
  return parameters;
}

/// 2·tanh(z/2)/z = 1 + c₁x² + c₂x⁴ with x = z·log2(e), |x| ≤ ½: the polynomial with the least relative error,
/// 0.93 of a roundoff.
inline constexpr float kHalfTanhEnd = 0.5F;
inline constexpr float kHalfTanh1 = -0x1.47f810p-5F;
inline constexpr float kHalfTanh2 = 0x1.efd890p-10F;

/// What is staged of a channel's step.
struct StepInput {
  float delta;
  float gain;  ///< Δ·u, or u/2
};

/// A channel's step. `state` is what a state's A is kept as;
/// called with it, a step gives the next h. With 2^x instead of the C library's e^x: 7 instructions fewer.
/// Explicitly fused: of a·h + c·B the compiler would round a·h, and steps would wait for two instructions
/// each instead of one. Vectors are instructions per (element, state), with that of y = Σ C·h.
/// `kStateCoefficients`: there are registers for what Taylor methods would keep of a state.
template <Family family, bool kStateCoefficients = false>
class ScanStep;

/// 5 slots.
template <bool kStateCoefficients>
class ScanStep<Family::zoh, kStateCoefficients> {
 public:
  static constexpr bool kTakesGain = true;  ///< Δ·u, not u/2
  SSMBENCH_HD ScanStep(const MethodParameters& /*method*/, float delta, float gain)
      : delta_(delta), gain_(gain) {}
  SSMBENCH_HD static float state(const MethodParameters& /*method*/, float A) { return A * kLog2E; }
  SSMBENCH_HD float operator()(float A, float h, float B) const {
    return fmaf(exp2_approximate(exponent_of(delta_, A)), h, gain_ * B);
  }

 private:
  float delta_, gain_;
};

/// Its parameters are those of powers of z·log2(e), step_parameters(). The coefficients of
/// powers of z, which depend on Δ in the vim_ methods, are a step's: 9 slots and, per step, 6.
template <>
class ScanStep<Family::taylor, false> {
 public:
  static constexpr bool kTakesGain = true;
  SSMBENCH_HD ScanStep(const MethodParameters& method, float delta, float gain) : delta_(delta), gain_(gain) {
    const auto& c = method.taylor;  // without Δ²z² and Δ²z³
    for (int k = 0; k < 4; ++k)
      taylor_[k] = fmaf(delta, k < 2 ? fmaf(delta, c[2][k], c[1][k]) : c[1][k], c[0][k]);
  }
  SSMBENCH_HD static float state(const MethodParameters& /*method*/, float A) { return A * kLog2E; }
  SSMBENCH_HD float operator()(float A, float h, float B) const {
    const float z = exponent_of(delta_, A);
    return fmaf(exp2_approximate(z), h, gain_ * B * polynomial(taylor_, z));
  }

 private:
  float delta_, gain_, taylor_[4];
};

/// c is a polynomial in Δ whose coefficients are a state's: 8 slots and, per step, 3, but three registers a
/// state. c·u = G + G·Δ·(c₁ + c₂Δ + c₃Δ²) with G = Δ·u, or Δ²u/2 for vim_foh. While |A| < 2^42, past which A³
/// overflows.
template <>
class ScanStep<Family::taylor, true> {
 public:
  static constexpr bool kTakesGain = true;
  struct State {
    float A;     ///< times log2(e)
    float c[3];  ///< c₁ to c₃
  };

  SSMBENCH_HD ScanStep(const MethodParameters& method, float delta, float gain)
      : delta_(delta),
        gain_(gain * fmaf(delta, (1.0F - method.taylor[0][0]) * method.taylor[1][0], method.taylor[0][0])),
        gain_delta_(gain_ * delta) {}
  SSMBENCH_HD static State state(const MethodParameters& method, float A) {
    const auto& c = method.taylor;
    const float x = A * kLog2E;
    if (c[0][0] == 0.0F) {
      const float y = x / c[1][0];
      return {x, {c[1][1] * y, c[1][2] * x * y, c[1][3] * x * x * y}};
    }
    return {x,
            {c[0][1] * x + c[1][0], (c[0][2] * x + c[1][1]) * x + c[2][0],
             ((c[0][3] * x + c[1][2]) * x + c[2][1]) * x}};
  }
  SSMBENCH_HD float operator()(const State& state, float h, float B) const {
    const float series = fmaf(delta_, fmaf(delta_, state.c[2], state.c[1]), state.c[0]);
    return fmaf(exp2_approximate(exponent_of(delta_, state.A)), h, fmaf(gain_delta_, series, gain_) * B);
  }

 private:
  float delta_, gain_, gain_delta_;
};

/// Ā·h + c·B as ((1 + w)·h + Δ·u·B)/(1 − w): 7 slots. Taking (1 + w)/(1 − w) as 2/(1 − w) − 1 would save two
/// and lose what is left of the difference near its zero.
template <bool kStateCoefficients>
class ScanStep<Family::bilinear, kStateCoefficients> {
 public:
  static constexpr bool kTakesGain = true;
  SSMBENCH_HD ScanStep(const MethodParameters& /*method*/, float delta, float gain)
      : delta_(delta), gain_(gain) {}
  SSMBENCH_HD static float state(const MethodParameters& method, float A) { return method.half_sign * A; }
  SSMBENCH_HD float decay(float half_A) const {
    return fmaf(delta_, half_A, 1.0F) * reciprocal_approximate(fmaf(-delta_, half_A, 1.0F));
  }
  SSMBENCH_HD float operator()(float half_A, float h, float B) const {
    const float inverse = reciprocal_approximate(fmaf(-delta_, half_A, 1.0F));
    return fmaf(fmaf(delta_, half_A, 1.0F), h, gain_ * B) * inverse;
  }

 private:
  float delta_, gain_;
};

/// Twice Δ·φ1(Δ·A), with the e^z that Ā has: Δ·(e^z + 1)·2·tanh(z/2)/z near 0, where there is nothing to
/// cancel; beyond, 2·(e^z − 1)/A, rounded once. There the two roundoffs of e^z weigh e^z/|e^z − 1| < 3.5. The
/// second form takes the place of the first by one predicated instruction. 12 slots and, per step, 2: as in
/// the Taylor methods, powers of Δ are a step's and of A a state's. While |A| < 2^33; past
/// it A⁴ overflows, and the first form loses digits.
template <bool kStateCoefficients>
class ScanStep<Family::foh, kStateCoefficients> {
 public:
  static constexpr bool kTakesGain = false;
  struct State {
    float A;  ///< times log2(e)
    float inverse;
    float c1, c2;  ///< of Δ³ and Δ⁵
  };

  SSMBENCH_HD ScanStep(const MethodParameters& /*method*/, float delta, float half_u)
      : delta_(delta), square_(delta * delta), cube_(delta * square_), half_u_(half_u) {}
  SSMBENCH_HD static State state(const MethodParameters& /*method*/, float A) {
    constexpr float kLargest = 0x1.fffffep+127F;  // times a Δ of 0 it is 0, as infinity is not
    const StateA<float> kept(A);
    const float x = kept.A * kLog2E;
    const float square = x * x;
    return {x, 2.0F * kept.inverse, fmaxf(kHalfTanh1 * square, -kLargest),
            fminf(kHalfTanh2 * square * square, kLargest)};
  }
  SSMBENCH_HD float operator()(const State& state, float h, float B) const {
    const float x = exponent_of(delta_, state.A);
    const float decay = exp2_approximate(x);
    const float quotient = fmaf(fmaf(square_, state.c2, state.c1), cube_, delta_);
    float input = fmaf(quotient, decay, quotient);
    if (fabsf(x) >= kHalfTanhEnd) input = fmaf(decay, state.inverse, -state.inverse);
    return fmaf(decay, h, input * (half_u_ * B));
  }

 private:
  float delta_, square_, cube_, half_u_;
};

/// h ← Ā·(h + ½Δ·(u·B before)) + ½Δ·u·B: 7 slots. `before`, u·B/2 of the step before, becomes that of this
/// one.
template <bool kStateCoefficients>
class ScanStep<Family::trapezoidal, kStateCoefficients> {
 public:
  static constexpr bool kTakesGain = false;
  SSMBENCH_HD ScanStep(const MethodParameters& /*method*/, float delta, float half_u)
      : delta_(delta), half_u_(half_u) {}
  SSMBENCH_HD static float state(const MethodParameters& /*method*/, float A) { return A * kLog2E; }
  SSMBENCH_HD float operator()(float A, float h, float B, float& before) const {
    const float input = half_u_ * B;
    const float decayed = fmaf(delta_, before, h);
    before = input;
    return fmaf(exp2_approximate(exponent_of(delta_, A)), decayed, delta_ * input);
  }

 private:
  float delta_, half_u_;
};

/// c = Δ·φ2(z) and c' = Δ·(φ1 − φ2)(z), twice each. For |z| < 1 by the series of φ2, and φ1 − φ2 = 1 + (z −
/// 1)·φ2; beyond by (e^z − 1 − z)·Δ/z² and ((z − 1)·e^z + 1)·Δ/z², the one where the other cancels. 28 slots
/// and, per step, 5. `before` is u·B/2 of the step before, and becomes that of this one.
template <bool kStateCoefficients>
class ScanStep<Family::foh_exact, kStateCoefficients> {
 public:
  static constexpr bool kTakesGain = false;

  SSMBENCH_HD ScanStep(const MethodParameters& /*method*/, float delta, float half_u)
      : delta_(delta), twice_(2.0F * delta), twice_inverse_(2.0F * reciprocal(delta)), half_u_(half_u) {}
  SSMBENCH_HD static StateA<float> state(const MethodParameters& /*method*/, float A) {
    return StateA<float>(A);
  }
  SSMBENCH_HD float operator()(const StateA<float>& state, float h, float B, float& before) const {
    const float z = delta_ * state.A;
    const float decay = exp2_approximate(exponent_of(z, kLog2E));
    const float z_minus_1 = z - 1.0F;
    float input = twice_ * phi2_series(z);
    float previous = fmaf(z_minus_1, input, twice_);
    const float scale = twice_inverse_ * state.inverse * state.inverse;  // 2Δ/z²
    const float far_input = (decay - (z + 1.0F)) * scale;
    const float far_previous = fmaf(z_minus_1, decay, 1.0F) * scale;
    if (fabsf(z) >= 1.0F) {
      input = far_input;
      previous = far_previous;
    }
    const float own = half_u_ * B;
    const float sum = fmaf(previous, before, input * own);
    before = own;
    return fmaf(decay, h, sum);
  }

 private:
  float delta_, twice_, twice_inverse_, half_u_;
};

/// A state after a step. Methods of one sample leave `before` alone.
template <Family family, class Step, class State, class Value>
SSMBENCH_HD Value next_state(const Step& step, const State& state, Value h, Value B, Value& before) {
  if constexpr (two_samples(family))
    return step(state, h, B, before);
  else
    return step(state, h, B);
}

/// The product of the decays of a channel's states over steps: e^(A·ΣΔ), or decay by decay where Ā is no
/// exponential.
template <Family family, int states>
class DecayProduct {
 public:
  SSMBENCH_HD void add(float delta) { sum_ += delta; }
  template <class Step, class State>
  SSMBENCH_HD void multiply(int /*s*/, const Step& /*step*/, const State& /*state*/) {}
  SSMBENCH_HD float of(int /*s*/, float A) const { return exp2_approximate(sum_ * (A * kLog2E)); }

 private:
  float sum_ = 0.0F;
};

template <int states>
class DecayProduct<Family::bilinear, states> {
 public:
  SSMBENCH_HD DecayProduct() {
    for (float& product : products_) product = 1.0F;
  }
  SSMBENCH_HD void add(float /*delta*/) {}
  template <class Step>
  SSMBENCH_HD void multiply(int s, const Step& step, float half_A) {
    products_[s] *= step.decay(half_A);
  }
  SSMBENCH_HD float of(int s, float /*A*/) const { return products_[s]; }

 private:
  float products_[states];
};

}  // namespace ssmbench::fused
