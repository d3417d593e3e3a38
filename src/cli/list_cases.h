#pragma once

#include <functional>
#include <vector>

#include "sweep/plan.h"

namespace ssmbench {

/// One device of every kind that this build has implementations for, whether or not the machine has it: what
/// a case could run on.
std::vector<DeviceInfo> possible_devices();

/// The cases of a plan and, per implementation, "supported" or the reason why not.
void print_cases(const Plan& plan);

/// The same of several plans as one JSON array, for machines. `for_each` calls what it is given with each.
void print_cases_as_json(const std::function<void(const std::function<void(const Plan&)>&)>& for_each);

}  // namespace ssmbench
