#pragma once

#include <cstddef>

#include "kernels/common/cpu/simd_lanes.h"
#include "ops/selective_state_update/selective_state_update.h"

// cpu-step: what the code for each instruction set shares with the code that is compiled once.

namespace ssmbench::simd {

/// Room for the states of a row, rounded up to any vector's lanes.
inline constexpr std::size_t kStepStates = static_cast<std::size_t>(kMaxStepDState);

/// What the rows of a head share at one token. Zeros follow the last state in B and C.
struct alignas(64) HeadToken {
  float decay[kStepStates], B[kStepStates], C[kStepStates];
  float delta;
};

}  // namespace ssmbench::simd
