#include "supervise/job_books.h"

#include "sweep/job_result.h"

namespace ssmbench {

void JobBooks::finish(std::size_t job, CaseResult result) {
  result.the_case = plan_.job(job).first->the_case;  // knows where it was asked for, too
  collect_(job);
  listener_.finished(job, result);
  left_[job] = false;
}

void JobBooks::fail(std::size_t job, const Explanation& why) {
  const auto& [planned, the_job] = plan_.job(job);
  listener_.finished(job, failed_result(plan_, planned->the_case, *the_job, options_, why));
  left_[job] = false;
}

void JobBooks::fail_case(const PlannedCase& planned, const Explanation& why) {
  std::size_t job = 0;
  for (const auto& each : plan_.cases)
    for (std::size_t i = 0; i < each.jobs.size(); ++i, ++job)
      if (&each == &planned && left_[job]) fail(job, why);
}

void JobBooks::fail_all(const Explanation& why) {
  for (std::size_t job = 0; job < left_.size(); ++job)
    if (left_[job]) fail(job, why);
}

}  // namespace ssmbench
