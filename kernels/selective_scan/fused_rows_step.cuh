#pragma once

// One step of one channel in cuda-fused's fast kernel (fused_rows_kernel.cuh): a class for each family of
// methods.

#include "kernels/common/discretize.h"
#include "kernels/selective_scan/fused_rows_math.h"

namespace ssmbench {

/// method_parameters() as the fast kernel takes them: Taylor coefficients of powers of z·log2(e).
inline MethodParameters rows_parameters(MethodId method) {
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

namespace rows {

/// A channel's step with what is staged of it: Δ and Δ·u, or u. `state` is what a state's A is kept as;
/// called with it, a step gives the next h. With 2^x instead of the C library's e^x: 7 instructions fewer.
/// Explicitly fused: of a·h + c·B the compiler would round a·h, and steps would wait for two instructions
/// each instead of one.
template <Family family>
class RowsStep;

template <>
class RowsStep<Family::zoh> {
 public:
  static constexpr bool kTakesGain = true;  ///< Δ·u, not u
  __device__ RowsStep(const MethodParameters& /*method*/, float delta, float gain)
      : delta_(delta), gain_(gain) {}
  __device__ static float state(const MethodParameters& /*method*/, float A) { return A * kLog2E; }
  __device__ float operator()(float A, float h, float B) const {
    return fmaf(exp2_approximate(delta_ * A), h, gain_ * B);
  }

 private:
  float delta_, gain_;
};

/// Its parameters are those of powers of z·log2(e), rows_parameters().
template <>
class RowsStep<Family::taylor> {
 public:
  static constexpr bool kTakesGain = true;
  __device__ RowsStep(const MethodParameters& method, float delta, float gain) : delta_(delta), gain_(gain) {
    const auto& c = method.taylor;
    for (int k = 0; k < 4; ++k) taylor_[k] = c[0][k] + delta * (c[1][k] + delta * c[2][k]);
  }
  __device__ static float state(const MethodParameters& /*method*/, float A) { return A * kLog2E; }
  __device__ float operator()(float A, float h, float B) const {
    const float z = delta_ * A;
    return fmaf(exp2_approximate(z), h, gain_ * B * polynomial(taylor_, z));
  }

 private:
  float delta_, gain_, taylor_[4];
};

template <>
class RowsStep<Family::bilinear> {
 public:
  static constexpr bool kTakesGain = true;
  __device__ RowsStep(const MethodParameters& /*method*/, float delta, float gain)
      : delta_(delta), gain_(gain) {}
  __device__ static float state(const MethodParameters& method, float A) { return method.half_sign * A; }
  __device__ float operator()(float half_A, float h, float B) const {
    const float w = delta_ * half_A;
    const float inverse = reciprocal_approximate(1.0F - w);
    return fmaf((1.0F + w) * inverse, h, gain_ * inverse * B);
  }

 private:
  float delta_, gain_;
};

template <>
class RowsStep<Family::foh> {
 public:
  static constexpr bool kTakesGain = false;
  __device__ RowsStep(const MethodParameters& method, float delta, float u) : step_(method, delta, u) {}
  __device__ static StateA<float> state(const MethodParameters& /*method*/, float A) {
    return StateA<float>(A);
  }
  __device__ float operator()(const StateA<float>& A, float h, float B) const {
    const auto [decay, input, previous] = step_(A);
    return fmaf(decay, h, input * B);
  }

 private:
  Step<Family::foh> step_;
};

}  // namespace rows
}  // namespace ssmbench
