#pragma once

#include <map>
#include <string>
#include <vector>

#include "record/record_reader.h"
#include "sweep/plan.h"
#include "sweep/run_listener.h"

namespace ssmbench {

/// What of a plan is left to do after earlier runs.
struct Remainder {
  JobSet jobs;                   ///< to run
  std::vector<CaseResult> kept;  ///< of the others, in the plan's order
};

/// Keeps what an earlier run finished under the same key: not errors, nor what was skipped and can run now.
Remainder remaining(const Plan& plan, const std::vector<std::string>& keys,
                    const std::vector<CaseResult>& earlier);

}  // namespace ssmbench
