#pragma once

#include <cmath>

#include "kernels/common/host_device.h"
#include "kernels/common/scalar_math.h"
#include "kernels/mamba3/phase.h"

// What increments of phases (phase.h) are made of, by few instructions and without branches. Host and device, so
// that the CPU tests cover it.

namespace ssmbench::mamba3_hopper {

/// 1 − 2/(1 + e^2|x|) with x's sign, and below 0.55, where that would lose digits, x + x·u·p(u) with u = x² and
/// the polynomial of the least relative error, 0.6 of a roundoff.
SSMBENCH_HD inline float fast_tanh(float x) {
  const float e = exp2_approximate(fabsf(x) * (2 * kLog2E));
  const float large = copysignf(fmaf(-2.0F, reciprocal_approximate(1.0F + e), 1.0F), x);
  const float u = x * x;
  const float series =
      fmaf(fmaf(fmaf(0x1.0d535ap-6F, u, -0x1.af7d9ap-5F), u, 0x1.10cefep-3F), u, -0x1.555452p-2F);
  return fabsf(x) < 0.55F ? fmaf(x * u, series, x) : large;
}

/// The phase of at most half a turn either way. (On a GPU half a turn is 2^31 − 1.)
SSMBENCH_HD inline std::uint32_t phase_of_part(float turns) {
#ifdef __CUDA_ARCH__
  return static_cast<std::uint32_t>(__float2int_rn(turns * 0x1p32F));
#else
  return phase_of_turns(turns);
#endif
}

}  // namespace ssmbench::mamba3_hopper
