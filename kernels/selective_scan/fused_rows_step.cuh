#pragma once

// One step of one channel in cuda-fused's fast kernel (fused_rows_kernel.cuh): a class for each family of
// methods. Host and device, so that the CPU tests cover them.

#include "kernels/common/discretize.h"
#include "kernels/selective_scan/fused_rows_math.h"

namespace ssmbench {

namespace rows {

/// A channel's step with what is staged of it: Δ and Δ·u, or u. `state` is what a state's A is kept as;
/// called with it, a step gives the next h. With 2^x instead of the C library's e^x: 7 instructions fewer.
/// Explicitly fused: of a·h + c·B the compiler would round a·h, and steps would wait for two instructions
/// each instead of one. Slots are instructions per (element, state), with that of y = Σ C·h.
template <Family family>
class RowsStep;

/// 5 slots.
template <>
class RowsStep<Family::zoh> {
 public:
  static constexpr bool kTakesGain = true;  ///< Δ·u, not u
  SSMBENCH_HD RowsStep(const MethodParameters& /*method*/, float delta, float gain)
      : delta_(delta), gain_(gain) {}
  SSMBENCH_HD static float state(const MethodParameters& /*method*/, float A) { return A * kLog2E; }
  SSMBENCH_HD float operator()(float A, float h, float B) const {
    return fmaf(exp2_approximate(delta_ * A), h, gain_ * B);
  }

 private:
  float delta_, gain_;
};

/// c as a polynomial in Δ whose coefficients are a state's: where those of powers of z depend on Δ, as in the
/// vim_ methods, each thread would compute them at each step. c = Δ·(c₀ + c₁Δ + c₂Δ² + c₃Δ³), but for
/// vim_foh, which has Δ² in place of the first Δ: 9 slots and, per step, 2. While |A| < 2^42, past which A³
/// overflows.
template <>
class RowsStep<Family::taylor> {
 public:
  static constexpr bool kTakesGain = true;
  struct State {
    float A;     ///< times log2(e)
    float c[3];  ///< c₁ to c₃
  };

  SSMBENCH_HD RowsStep(const MethodParameters& method, float delta, float gain)
      : delta_(delta),
        gain_(gain * fmaf(delta, 1.0F - method.taylor[0][0], method.taylor[0][0])),
        constant_(is_square(method) ? method.taylor[1][0] : 1.0F) {}
  SSMBENCH_HD static State state(const MethodParameters& method, float A) {
    const auto& c = method.taylor;
    if (is_square(method)) return {A * kLog2E, {c[1][1] * A, c[1][2] * A * A, c[1][3] * A * A * A}};
    return {A * kLog2E,
            {c[0][1] * A + c[1][0], (c[0][2] * A + c[1][1]) * A + c[2][0],
             ((c[0][3] * A + c[1][2]) * A + c[2][1]) * A}};
  }
  SSMBENCH_HD float operator()(const State& state, float h, float B) const {
    float sum = state.c[2];
    for (const float c : {state.c[1], state.c[0], constant_}) sum = fmaf(delta_, sum, c);
    return fmaf(exp2_approximate(delta_ * state.A), h, gain_ * B * sum);
  }

 private:
  /// Whether c has no term in Δ; the other methods have 1·Δ.
  SSMBENCH_HD static bool is_square(const MethodParameters& method) { return method.taylor[0][0] == 0.0F; }

  float delta_, gain_, constant_;
};

/// Ā·h + c·B as ((1 + w)·h + Δ·u·B)/(1 − w): 7 slots. Taking (1 + w)/(1 − w) as 2/(1 − w) − 1 would save two
/// and lose what is left of the difference near its zero.
template <>
class RowsStep<Family::bilinear> {
 public:
  static constexpr bool kTakesGain = true;
  SSMBENCH_HD RowsStep(const MethodParameters& /*method*/, float delta, float gain)
      : delta_(delta), gain_(gain) {}
  SSMBENCH_HD static float state(const MethodParameters& method, float A) { return method.half_sign * A; }
  SSMBENCH_HD float operator()(float half_A, float h, float B) const {
    const float inverse = reciprocal_approximate(fmaf(-delta_, half_A, 1.0F));
    return fmaf(fmaf(delta_, half_A, 1.0F), h, gain_ * B) * inverse;
  }

 private:
  float delta_, gain_;
};

/// Δ·φ1(Δ·A), with the e^z that Ā has: Δ·(e^z + 1)·tanh(z/2)/z near 0, where there is nothing to cancel;
/// beyond, (e^z − 1)/A, rounded once. There the two roundoffs of e^z weigh e^z/|e^z − 1| < 3.5. 13 slots: the
/// second form takes the place of the first by one predicated instruction.
template <>
class RowsStep<Family::foh> {
 public:
  static constexpr bool kTakesGain = false;
  struct State {
    float A;  ///< times log2(e)
    float inverse;
  };

  SSMBENCH_HD RowsStep(const MethodParameters& /*method*/, float delta, float u) : delta_(delta), u_(u) {}
  SSMBENCH_HD static State state(const MethodParameters& /*method*/, float A) {
    const StateA<float> kept(A);
    return {kept.A * kLog2E, kept.inverse};
  }
  SSMBENCH_HD float operator()(const State& state, float h, float B) const {
    const float x = delta_ * state.A;
    const float decay = exp2_approximate(x);
    float input = fmaf(delta_, decay, delta_) * half_tanh_quotient(x * x);
    if (fabsf(x) >= kHalfTanhEnd) input = fmaf(decay, state.inverse, -state.inverse);
    return fmaf(decay, h, input * (u_ * B));
  }

 private:
  float delta_, u_;
};

}  // namespace rows
}  // namespace ssmbench
