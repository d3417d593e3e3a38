#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/cpu/simd_lanes.h"
#include "ops/selective_state_update/selective_state_update.h"

// cpu-step: what the code for each instruction set shares with the code that is compiled once.

namespace ssmbench::simd {

/// Room for the states of a row, rounded up to any vector's lanes.
inline constexpr std::size_t kStepStates = static_cast<std::size_t>(kMaxStepDState);

/// Rows that are computed at once, and whose x and outputs are on SIMD lanes together.
inline constexpr std::size_t kStepRows = 4;
inline constexpr std::int64_t kStepOutputs = 64;

/// What the rows of a head share at one token, and heads of a group, of which B and C are. Zeros follow their
/// last state.
struct alignas(64) HeadToken {
  float decay[kStepStates], B[kStepStates], C[kStepStates];
  float delta;
  std::int64_t group = -1;  ///< among those of all tokens and sequences
};

}  // namespace ssmbench::simd
