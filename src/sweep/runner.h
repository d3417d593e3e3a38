#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/device.h"
#include "sweep/case_reference.h"
#include "sweep/job_result.h"
#include "sweep/plan.h"
#include "sweep/run_listener.h"
#include "sweep/runner_options.h"

namespace ssmbench {

/// Runs the jobs of a plan in this process: for each case inputs and reference once, then its implementations
/// on each device (sweep/case_runner.h), and reports what comes of them. One that fails in a way that can be
/// caught becomes a record and the sweep goes on; src/supervise/ contains the others.
class Runner {
 public:
  Runner(const Plan& plan, RunnerOptions options, RunListener& listener, const std::atomic<bool>& stop)
      : plan_(plan), options_(std::move(options)), listener_(listener), stop_(stop) {}

  /// Called after each job that produced outputs, unless its result is invalid.
  void on_finished(FinishedHook hook) { finished_ = std::move(hook); }

  /// Runs these jobs, case by case in the plan's order; of a case those that are skipped come first.
  /// Throws Interrupted once `stop` is set, and lets OutputError and whatever the making of inputs and
  /// reference throws but want of memory through.
  void run(const JobSet& jobs);
  void run() { run(JobSet(plan_.job_count(), true)); }

 private:
  void run_case(const Case& the_case, const std::vector<NumberedJob>& jobs);
  Device& device(std::size_t index);
  /// Leaves the case's reference in reference_, computed anew only if the last one was another. In parts it
  /// is of these inputs.
  void prepare_reference(const Case& the_case, std::size_t job, const std::vector<HostTensor>& inputs);

  const Plan& plan_;
  RunnerOptions options_;
  RunListener& listener_;
  const std::atomic<bool>& stop_;
  FinishedHook finished_;

  std::map<std::size_t, std::unique_ptr<Device>> devices_;
  std::string reference_key_;  ///< of the one in memory; empty: there is none
  std::optional<CaseReference> reference_;
};

}  // namespace ssmbench
