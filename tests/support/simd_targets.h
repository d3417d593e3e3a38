#pragma once

#include <hwy/targets.h>

namespace ssmbench::test {

/// Calls function(name of the instruction set) with Highway's code on each that this processor has.
template <class Function>
void on_every_target(const Function& function) {
  for (const auto target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    function(hwy::TargetName(target));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace ssmbench::test
