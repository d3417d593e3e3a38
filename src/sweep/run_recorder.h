#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/progress.h"
#include "record/reporter.h"
#include "sweep/best_of_one.h"
#include "sweep/run_listener.h"
#include "sweep/runner_options.h"
#include "sweep/time_left.h"

namespace ssmbench {

/// Keeps the books of a run, wherever its jobs run: counts, times, shows progress, and hands each result to
/// the reporters as it comes.
class RunRecorder : public RunListener {
 public:
  /// `keys`: of each job (job_keys); `jobs`: those that will run, in so many slots at a time.
  RunRecorder(const Plan& plan, const RunnerOptions& options, std::vector<std::string> keys,
              const JobSet& jobs, std::size_t slots, std::vector<Reporter*> reporters, Progress& progress);

  void begin(const RunInfo& info);
  /// A result of an earlier run, which counts like one of this.
  void kept(const CaseResult& result);
  void in_slot(std::size_t slot) override { slot_ = slot; }
  void waiting() override;
  void starting(std::size_t job, Stage stage) override;
  void resuming(std::size_t job) override;
  void finished(std::size_t job, const CaseResult& result) override;
  Summary finish(bool interrupted);

 private:
  using Clock = std::chrono::steady_clock;

  void count(const CaseResult& result);
  /// Inputs and reference say only when they are begun.
  void end_preparation();
  /// Adds the time since the last event of the slot to what was going on there.
  void account();
  std::optional<double> seconds_left() const;

  const Plan& plan_;
  const RunnerOptions& options_;
  std::vector<std::string> keys_;
  std::vector<Reporter*> reporters_;
  Progress& progress_;

  BestOfOne best_of_one_;
  Summary summary_;
  std::size_t jobs_done_ = 0;
  TimeLeft time_left_;
  struct Activity {
    std::optional<std::pair<std::size_t, Stage>> going_on = {};  ///< a job and what is being done for it
    Clock::time_point last_event = {};
  };
  std::vector<Activity> slots_;
  std::size_t slot_ = 0;  ///< of the latest event
  Clock::time_point start_, last_event_;
};

}  // namespace ssmbench
