#pragma once

#include <vector>

#include "sweep/plan.h"

namespace ssmbench {

/// One device of every kind that this build has implementations for, whether or not the machine has it: what
/// a case could run on.
std::vector<DeviceInfo> possible_devices();

/// The cases of a plan and, per implementation, "supported" or the reason why not. Text, or JSON for
/// machines.
void print_cases(const Plan& plan, bool json);

}  // namespace ssmbench
