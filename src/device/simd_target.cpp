#include "device/simd_target.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/errors.h"

namespace ssmbench {

std::string simd_target() {
  const auto targets = hwy::SupportedAndGeneratedTargets();
  return hwy::TargetName(*std::ranges::min_element(targets));  // the best has the lowest bit
}

void limit_simd_target() {
  const char* wanted = std::getenv("SSMBENCH_SIMD");
  if (wanted == nullptr) return;
  std::vector<std::string_view> names;
  for (const auto target : hwy::SupportedAndGeneratedTargets()) {
    names.emplace_back(hwy::TargetName(target));
    if (names.back() != wanted) continue;
    // Not DisableTargets(): what that leaves out is chosen all the same once SupportedTargets() has been
    // called.
    hwy::SetSupportedTargetsForTest(hwy::SupportedTargets() &
                                    ~(target - 1));  // the better, the lower its bit
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    return;
  }
  throw UsageError(fmt::format("SSMBENCH_SIMD is {}; expected one of {}", wanted, fmt::join(names, ", ")));
}

}  // namespace ssmbench
