#pragma once

#include "record/result.h"

namespace ssmbench {

// The exit codes that scripts rely on.
inline constexpr int kOk = 0;
inline constexpr int kOutOfTolerance = 1;
inline constexpr int kUsage = 2;
inline constexpr int kRegression = 3;
inline constexpr int kDeviceOrCrash = 4;
inline constexpr int kNothingMatched = 5;
inline constexpr int kInconclusive = 6;
inline constexpr int kInterrupted = 130;

/// The worst of a run, in the order: interrupted, error, out of tolerance, nothing ran, all passed.
int exit_code_of(const Summary& summary);

}  // namespace ssmbench
