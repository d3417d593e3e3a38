#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "bench/timer.h"
#include "model/result.h"
#include "reference/reference.h"
#include "report/progress.h"
#include "report/reporter.h"
#include "sweep/judge_run.h"
#include "sweep/plan.h"

namespace ssmbench {

struct RunnerOptions {
  bool verify = true;
  bool time = true;
  TimingPolicy timing;
  RerunPolicy reruns = {};
  /// The command that runs one job again.
  std::function<std::string(const Case&, const Implementation&, const DeviceInfo&)> repro;
};

/// What a finished job leaves behind, for whoever dumps tensors. Valid during the call only.
struct FinishedJob {
  const CaseResult& result;
  const Implementation& implementation;
  const std::vector<HostTensor>& inputs;
  const std::vector<HostTensor>& outputs;
  const ReferenceOutputs* reference;  ///< null with --no-verify
};

/// Runs a plan: for each case inputs and reference once, then each implementation (sweep/judge_run.h), and
/// reports what comes of it. A failing implementation becomes a record and the sweep goes on. Returns when
/// all is done or `stop` is set; lets only OutputError through.
class Runner {
 public:
  using FinishedHook = std::function<void(const FinishedJob&)>;

  Runner(const Plan& plan, RunnerOptions options, std::vector<Reporter*> reporters, Progress& progress,
         const std::atomic<bool>& stop)
      : plan_(plan),
        options_(std::move(options)),
        reporters_(std::move(reporters)),
        progress_(progress),
        stop_(stop) {}

  /// Called after each job that produced outputs, unless its result is invalid.
  void on_finished(FinishedHook hook) { finished_ = std::move(hook); }

  Summary run(const RunInfo& info);

 private:
  void run_case(const PlannedCase& planned);
  void run_on_device(const PlannedCase& planned, std::size_t index, std::vector<HostTensor>& inputs);
  /// Makes the inputs anew where an implementation changed them or the bands around them, so that the next
  /// one finds them as they were.
  void repair_inputs(const Case& the_case, Device& target, std::vector<HostTensor>& inputs,
                     std::optional<DeviceInputs>& uploaded);
  /// run_job with its failures turned into results.
  CaseResult run_job_contained(const Case& the_case, const Job& job, const std::vector<HostTensor>& inputs,
                               const DeviceInputs& uploaded);
  CaseResult run_job(const Case& the_case, const Job& job, const std::vector<HostTensor>& inputs,
                     const DeviceInputs& uploaded);
  Device& device(std::size_t index);
  void emit(const CaseResult& result);
  CaseResult blank_result(const Case& the_case, const Job& job) const;
  CaseResult failed_result(const Case& the_case, const Job& job, std::string reason) const;
  /// Leaves the case's reference in reference_, computed anew only if the last one was another.
  void compute_reference_of(const Case& the_case, const std::vector<HostTensor>& inputs);

  const Plan& plan_;
  RunnerOptions options_;
  std::vector<Reporter*> reporters_;
  Progress& progress_;
  const std::atomic<bool>& stop_;
  FinishedHook finished_;

  std::map<std::size_t, std::unique_ptr<Device>> devices_;
  std::string reference_key_;
  ReferenceOutputs reference_;
  Summary summary_;
  std::size_t jobs_done_ = 0;
};

}  // namespace ssmbench
