#pragma once

#include <cstddef>
#include <functional>

#include "record/result.h"
#include "sweep/plan.h"
#include "sweep/run_listener.h"
#include "sweep/runner_options.h"

namespace ssmbench {

/// Which jobs of a run are left, whoever runs them; passes on what comes of each.
class JobBooks {
 public:
  /// `collect` is called before a job's result is passed on.
  JobBooks(const Plan& plan, const RunnerOptions& options, RunListener& listener,
           std::function<void(std::size_t job)> collect, JobSet jobs)
      : plan_(plan),
        options_(options),
        listener_(listener),
        collect_(std::move(collect)),
        left_(std::move(jobs)) {}

  const Plan& plan() const { return plan_; }
  const RunnerOptions& options() const { return options_; }
  RunListener& listener() { return listener_; }
  const JobSet& left() const { return left_; }
  bool is_left(std::size_t job) const { return job < left_.size() && left_[job]; }

  /// Of a worker, as it came.
  void finish(std::size_t job, CaseResult result);
  void fail(std::size_t job, const Explanation& why);
  /// All that is left of a case.
  void fail_case(const PlannedCase& planned, const Explanation& why);
  void fail_all(const Explanation& why);

 private:
  const Plan& plan_;
  const RunnerOptions& options_;
  RunListener& listener_;
  std::function<void(std::size_t)> collect_;
  JobSet left_;
};

}  // namespace ssmbench
