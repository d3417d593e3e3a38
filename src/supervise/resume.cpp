#include "supervise/resume.h"

namespace ssmbench {

Remainder remaining(const Plan& plan, const std::vector<std::string>& keys,
                    const std::vector<CaseResult>& earlier) {
  std::map<std::string, const CaseResult*> by_key;
  for (const auto& result : earlier) by_key[result.key] = &result;

  Remainder remainder;
  for (const auto& planned : plan.cases) {
    for (const auto& job : planned.jobs) {
      const auto found = by_key.find(keys[remainder.jobs.size()]);
      const CaseResult* result = found == by_key.end() ? nullptr : found->second;
      const bool done = result != nullptr && result->status != Status::error &&
                        (result->status != Status::skip || job.skip);
      remainder.jobs.push_back(!done);
      if (!done) continue;
      remainder.kept.push_back(*result);
      remainder.kept.back().the_case = planned.the_case;
    }
  }
  return remainder;
}

}  // namespace ssmbench
