#pragma once

#include <map>
#include <string>

namespace ssmbench {

/// What a config allows in place of the derived tolerance: |got − expected| ≤ abs + rel·|expected|.
struct UserTolerance {
  double abs = 0;
  double rel = 0;
};

/// By output.
using UserTolerances = std::map<std::string, UserTolerance>;

}  // namespace ssmbench
