#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/common/host_device.h"

// Angles in turns as 32-bit integers that wrap: sums of them are exact and reduced by themselves, so that any
// order of summation gives the same bits. A step of the integer is 1.5e-9 rad.

namespace ssmbench {

/// The phase of an angle of any size.
SSMBENCH_HD inline std::uint32_t phase_of_turns(float turns) {
  const float part = turns - rintf(turns);  // exact, within ±1/2
  // Half a turn either way is the same phase, and the one of them that 32 bits hold is taken: GPUs convert to 64 bits
  // at a fraction of the rate.
  const float within = part < 0.5F ? part : -0.5F;
  return static_cast<std::uint32_t>(static_cast<std::int32_t>(rintf(within * 0x1p32F)));
}

/// Within ±1/2.
SSMBENCH_HD inline float turns_of_phase(std::uint32_t phase) {
  return static_cast<float>(static_cast<std::int32_t>(phase)) * 0x1p-32F;
}

inline constexpr float kTurnInRadians = 6.283185307179586F;

SSMBENCH_HD inline std::uint32_t phase_of_radians(float angle) {
  return phase_of_turns(angle / kTurnInRadians);
}

/// Within [0, 2π].
SSMBENCH_HD inline float radians_of_phase(std::uint32_t phase) {
  return static_cast<float>(phase) * (kTurnInRadians * 0x1p-32F);
}

/// What DT·π·tanh(rate) adds.
SSMBENCH_HD inline std::uint32_t phase_step(float dt, float rate) {
  return phase_of_turns(0.5F * dt * tanhf(rate));
}

}  // namespace ssmbench
