#pragma once

#include <cmath>

// The scalar arithmetic that kernels are made of, one definition for host and device, so that the CPU tests cover
// what the GPU runs. f32 throughout.

#ifdef __CUDACC__
#define SSMBENCH_HD __host__ __device__
#else
#define SSMBENCH_HD
#endif

namespace ssmbench {

/// log(1 + e^x). log1p keeps the relative accuracy for negative x, where log(1 + e^x) would lose it; past 20 the
/// correction e^-x is under half an ulp of x in f32, so x itself is exact.
SSMBENCH_HD inline float softplus(float x) { return x > 20.0F ? x : log1pf(expf(x)); }

/// x·σ(x). e^-x overflows to infinity for x < -88 and the quotient is then the correct -0.
SSMBENCH_HD inline float silu(float x) { return x / (1.0F + expf(-x)); }

/// A pair (decay, value) stands for the map h ↦ decay·h + value; the scan combines such maps.
/// `first` is applied before `second`. Source: Blelloch, "Prefix Sums and Their Applications" (1990), section 1.4.
struct DecayValue {
  float decay;
  float value;
};

SSMBENCH_HD inline DecayValue combine(DecayValue first, DecayValue second) {
  return {first.decay * second.decay, second.decay * first.value + second.value};
}

}  // namespace ssmbench
