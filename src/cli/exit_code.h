#pragma once

#include "model/result.h"

namespace ssmbench {

/// The exit codes that scripts rely on.
enum ExitCode : int {
  kOk = 0,
  kOutOfTolerance = 1,
  kUsage = 2,
  kDeviceOrCrash = 4,
  kNothingMatched = 5,
  kInterrupted = 130,
};

/// The worst of a run, in the order: interrupted, error, out of tolerance, nothing ran, all passed.
ExitCode exit_code_of(const Summary& summary);

}  // namespace ssmbench
