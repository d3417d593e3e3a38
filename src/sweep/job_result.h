#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "record/result.h"
#include "reference/reference.h"
#include "sweep/plan.h"
#include "sweep/runner_options.h"

namespace ssmbench {

/// A job of a plan, and its place among all of them.
struct NumberedJob {
  std::size_t number;
  const Job* job;
};

/// What a finished job leaves behind, for whoever dumps tensors. Valid during the call only.
struct FinishedJob {
  const CaseResult& result;
  const Implementation& implementation;
  const std::vector<HostTensor>& inputs;
  const std::vector<HostTensor>& outputs;  ///< of the first launch
  const ReferenceOutputs* reference;       ///< null with --no-verify, and where it is in parts
};
using FinishedHook = std::function<void(const FinishedJob&)>;

/// The record of a job about which nothing is known but what it is.
CaseResult blank_result(const Plan& plan, const Case& the_case, const Job& job, const RunnerOptions& options);
/// The record of a job that could not be run. Runs nothing of the implementation's.
CaseResult failed_result(const Plan& plan, const Case& the_case, const Job& job, const RunnerOptions& options,
                         Explanation why);

}  // namespace ssmbench
