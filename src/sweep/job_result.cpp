#include "sweep/job_result.h"

#include <utility>

namespace ssmbench {

CaseResult blank_result(const Plan& plan, const Case& the_case, const Job& job,
                        const RunnerOptions& options) {
  const DeviceInfo& device = plan.devices[job.device];
  CaseResult result{.the_case = the_case, .impl = job.implementation->name, .device = device_id(device)};
  result.claims = job.implementation->arithmetic(the_case.problem.dtype());
  result.repro = options.repro(the_case, *job.implementation, device);
  return result;
}

CaseResult failed_result(const Plan& plan, const Case& the_case, const Job& job, const RunnerOptions& options,
                         Explanation why) {
  CaseResult result = blank_result(plan, the_case, job, options);
  result.status = Status::error;
  result.cause = why.cause;
  result.reason = std::move(why.reason);
  return result;
}

}  // namespace ssmbench
