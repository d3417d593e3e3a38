#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "supervise/child_process.h"
#include "supervise/protocol.h"
#include "sweep/runner_options.h"

namespace ssmbench {

struct SupervisorOptions {
  std::vector<std::string> worker_argv;  ///< what makes a worker of this executable
  /// What one implementation may take on one case. The making of inputs and of the reference, which are not
  /// under test, may each take kPreparationFactor times that.
  double timeout_seconds = 600;
  std::string dump_folder;  ///< for the workers' dump_parts; empty: none
  /// Called before a job's result is passed on.
  std::function<void(std::size_t job)> collect = [](std::size_t) {};
  /// For what users should know though it is no result.
  std::function<void(const std::string&)> warn = [](const std::string&) {};
};
inline constexpr double kPreparationFactor = 10;

/// Runs jobs in a worker process, and in a new one after each that died, hung or lost its device: what it was
/// at becomes an error that says so, and the rest goes on.
class Supervisor {
 public:
  Supervisor(const Plan& plan, const RunnerOptions& options, SupervisorOptions how, RunListener& listener,
             const std::atomic<bool>& stop)
      : plan_(plan), options_(options), how_(std::move(how)), listener_(listener), stop_(stop) {}

  /// Throws Interrupted once `stop` is set, OutputError when results or tensors cannot be written.
  void run(JobSet jobs);

 private:
  using Clock = ChildProcess::Clock;

  /// What the worker says that it is at.
  struct Place {
    std::size_t job;
    Stage stage;
  };
  /// The life of one worker. How it died; nothing when it ended in good order.
  std::optional<Explanation> run_worker();
  /// False for a worker's last words.
  bool handle(const Message& message);
  void finish(std::size_t job, const std::string& record);
  /// Puts a death down to what it happened at.
  void blame(const Explanation& death);
  /// All that is left of a case.
  void fail_case(const PlannedCase& planned, const Explanation& why);
  void fail(std::size_t job, const Explanation& why);
  double seconds_allowed() const;
  /// Charges the time since the last message to the job that it was about.
  void charge(Clock::time_point now);
  /// When what the worker is at has taken too long. What other jobs took in between does not count.
  Clock::time_point deadline() const;

  const Plan& plan_;
  const RunnerOptions& options_;
  SupervisorOptions how_;
  RunListener& listener_;
  const std::atomic<bool>& stop_;

  JobSet left_;
  std::optional<Place> place_;                   ///< none between jobs
  Clock::time_point since_;                      ///< there, by the worker's now()
  std::map<std::size_t, double> spent_seconds_;  ///< by this worker, on the run of each job before that
  bool has_finished_some_ = false;               ///< this worker
  int deaths_at_start_ = 0;                      ///< in a row
};

}  // namespace ssmbench
