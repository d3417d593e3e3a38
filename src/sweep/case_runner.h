#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/transfers.h"
#include "device/device.h"
#include "sweep/job_result.h"
#include "sweep/judge_run.h"
#include "sweep/plan.h"
#include "sweep/prepared_run.h"
#include "sweep/run_listener.h"
#include "sweep/runner_options.h"

namespace ssmbench {

/// Runs jobs of one case on one device. They are verified one after the other; those that pass stay in memory
/// and are then timed in turns, a burst of samples each, in rounds of random order, so that a device that
/// gets warmer or busier does so for all of them; then each is verified once more. Where they do not fit the
/// memory together, those that do are timed before the next ones are verified.
///
/// One that fails in a way that can be caught becomes a record. Where nobody can tell which of several it
/// was that overwrote inputs or took the memory, they are run again, each alone.
class CaseRunner {
 public:
  /// `inputs` are made anew where a job on a device that shares their memory overwrote them; they and
  /// `reference` (null: nothing is verified) have to live as long.
  CaseRunner(const Plan& plan, const RunnerOptions& options, RunListener& listener,
             const std::atomic<bool>& stop, const FinishedHook& finished, const Case& the_case,
             Device& device, std::vector<HostTensor>& inputs, const CaseReference* reference);

  void run(const std::vector<NumberedJob>& jobs);

 private:
  /// A job that was started and is not finished.
  struct Candidate {
    NumberedJob job;
    CaseResult result;
    std::size_t bytes = 0;                 ///< that it takes while it is held
    std::unique_ptr<RunJudge> judge = {};  ///< none once it failed, or where profiled
    bool put_back = false;                 ///< to be run again
  };
  using Place = std::list<Candidate>::iterator;

  bool is_timed() const { return options_.time && case_.timed && has_times_; }
  void start(const NumberedJob& job);
  void verify(Candidate& candidate);
  /// Times all that are held, verifies them again and reports them.
  void finish_held();
  /// Bursts until all are done. Concludes those that fail.
  void take_turns();
  /// Reports one and lets go of it. Where it left the inputs overwritten, the others are put back: what
  /// they are bound to goes when the inputs are made anew.
  void conclude(Place place);
  void report(Candidate& candidate);
  /// Holds its times against the roofline floor.
  void judge_speed_of(Candidate& candidate);
  void put_back_held();
  /// Does a part of the work on one. False where that failed, and the result says how.
  template <class Work>
  bool contained(Candidate& candidate, const Work& work);
  void fail(Candidate& candidate, const std::exception& error);
  /// For want of memory, which others may hold.
  void lacks_memory(Candidate& candidate, const std::exception& error);
  CaseResult failed(const NumberedJob& job, const Explanation& why) const;

  std::size_t bytes_of(const NumberedJob& job) const;
  std::size_t room() const;
  void upload();
  /// Inputs of another seed and their reference, where launches that are timed need them (Disturbance).
  void prepare_other_seed();
  /// Whether they or the bands around them are not as they were. When the device cannot say, no further job
  /// can be started.
  bool inputs_are_damaged();
  /// Makes the inputs anew.
  void repair_inputs();

  const Plan& plan_;
  const RunnerOptions& options_;
  RunListener& listener_;
  const std::atomic<bool>& stop_;
  const FinishedHook& finished_;
  const Case& case_;
  Device& device_;
  bool has_times_ = true;  ///< DeviceInfo::untimed
  std::vector<HostTensor>& inputs_;
  const CaseReference* reference_;

  std::optional<DeviceInputs> uploaded_;
  std::vector<HostTensor> other_inputs_;
  std::optional<CaseReference> other_reference_;
  std::optional<DeviceInputs> other_uploaded_;
  std::optional<Explanation> upload_error_;
  std::optional<TransferTimer> transfers_;
  std::list<Candidate> held_;  ///< in the order of the plan
  std::size_t held_bytes_ = 0;
  std::size_t room_ = 0;            ///< for them
  std::vector<NumberedJob> again_;  ///< alone
};

}  // namespace ssmbench
