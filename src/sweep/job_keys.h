#pragma once

#include <string>
#include <vector>

#include "record/result.h"
#include "sweep/plan.h"
#include "sweep/runner_options.h"

namespace ssmbench {

/// For each job of the plan, in 16 hex digits, a hash of all that its result depends on: case (problem,
/// inputs, budget), implementation, binary and build, device and driver, and how it is verified and timed.
/// Whatever else comes to bear on results has to go in here.
std::vector<std::string> job_keys(const Plan& plan, const RunnerOptions& options, const RunInfo& info);

}  // namespace ssmbench
