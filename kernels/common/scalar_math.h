#pragma once

#include <cmath>

#include "kernels/common/host_device.h"

// The scalar arithmetic that kernels are made of, one definition for host and device, so that the CPU tests
// cover what the GPU runs. f32 throughout.

namespace ssmbench {

inline constexpr float kLog2E = 0x1.715476p+0F;

/// 2^x, 0 under 2^-126; on the GPU two roundoffs, and exact for whole numbers up to 127.
SSMBENCH_HD inline float exp2_approximate(float x) {
#ifdef __CUDA_ARCH__
  float power = 0;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
#else
  return exp2f(x);
#endif
}

/// Δ·A·log2(e), with A times log2(e), plus a fifth of a roundoff of e^z, which costs nothing with the
/// product. The hardware's 2^x is too small by 0.1 to 0.45 roundoffs on average for −1 < x < 0, and a state
/// adds that up over all steps that it remembers. 2^x of the constant alone is 1: a step of size 0 changes
/// nothing.
SSMBENCH_HD inline float exponent_of(float delta, float A) {
  constexpr float kShift = 0x1.4p-26F;
  return fmaf(delta, A, kShift);
}

/// 1/x, 0 for infinity; two roundoffs on the GPU.
SSMBENCH_HD inline float reciprocal_approximate(float x) {
#ifdef __CUDA_ARCH__
  float inverse = 0;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
  return inverse;
#else
  return 1.0F / x;
#endif
}

/// log(1 + e^x). log1p keeps the relative accuracy for negative x, where log(1 + e^x) would lose it. Past 20
/// the correction e^-x < 2.1e-9 is far under half an ulp of x (9.5e-7), so that x is the correctly rounded
/// result; and e^x would overflow past 88.
SSMBENCH_HD inline float softplus(float x) {
  return x > 20.0F ? x : log1pf(expf(x));
}

/// x·σ(x). With h = e^(-|x|/2) it is x/(1 + h²) for x ≥ 0 and x·h²/(1 + h²) for x < 0. Multiplying by h twice
/// keeps the products normal until the result itself is subnormal: e^x is subnormal from -87.4 on and
/// e^-x infinite from -88.8 on, where the result is still 3e-37. silu(-inf) is NaN, as IEEE arithmetic has it
/// for x·σ(x).
SSMBENCH_HD inline float silu(float x) {
  const float h = expf(-0.5F * fabsf(x));
  const float factor = x < 0.0F ? h : 1.0F;
  return x * factor / (1.0F + h * h) * factor;
}

/// A pair (decay, value) stands for the map h ↦ decay·h + value; the scan combines such maps. {1, 0} is the
/// identity. Source: Blelloch, "Prefix Sums and Their Applications" (1990), section 1.4.
struct DecayValue {
  float decay;
  float value;
};

/// The map that applies `first`, then `second`. Associative but for rounding, not commutative.
SSMBENCH_HD inline DecayValue combine(DecayValue first, DecayValue second) {
  return {first.decay * second.decay, second.decay * first.value + second.value};
}

}  // namespace ssmbench
