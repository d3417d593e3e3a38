#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "supervise/job_books.h"
#include "supervise/protocol.h"
#include "supervise/run_clock.h"
#include "supervise/worker_handle.h"
#include "sweep/units.h"

namespace ssmbench {

/// A place for a worker: some cores of a host and perhaps a GPU.
struct SlotPlace {
  std::string name = {};  ///< CaseResult::slot; empty: the only one, of which records say nothing
  std::string host = {};
  int supervisor = 0;  ///< the process that starts its workers, and with which they die
  WorkerPlace place = {};
  /// Throws DeviceError when the system does not give a process.
  std::function<std::unique_ptr<WorkerHandle>()> start;
};

struct SlotOptions {
  /// What one implementation may take on one case. The making of inputs and of the reference, which are not
  /// under test, may each take kPreparationFactor times that.
  double timeout_seconds = 600;
  /// For what users should know though it is no result.
  std::function<void(const std::string&)> warn = [](const std::string&) {};
};
inline constexpr double kPreparationFactor = 10;

/// Runs units in worker processes, one after the other, and in a new process after each that died, hung or
/// lost its device: what that was at becomes an error that says so, and the rest goes on. Nothing here
/// waits.
class Slot {
 public:
  /// `orders`: the first of each worker.
  Slot(std::size_t number, SlotPlace place, std::string orders, const SlotOptions& how, JobBooks& books,
       RunClock& clock)
      : number_(number),
        place_(std::move(place)),
        orders_(std::move(orders)),
        how_(how),
        books_(books),
        clock_(clock) {}

  const std::string& host() const { return place_.host; }
  /// Whether it can take a unit.
  bool is_free() const { return !unit_ && !is_ending_ && out_of_service_.empty(); }
  const Unit* unit() const { return unit_ ? &*unit_ : nullptr; }
  bool is_ending() const { return is_ending_; }
  bool has_worker() const { return worker_ != nullptr; }
  /// Why it takes no unit any more: its workers end before they do anything, or cannot be ended. Empty: it
  /// does.
  const std::string& out_of_service() const { return out_of_service_; }

  void take(Unit unit);
  /// What it has not done of its unit, once it is out of service.
  Unit give_back();
  /// Lets its worker, which has no unit, end.
  void dismiss();
  /// Sees to what has come since the last call. `beside`: how many other slots of its host have units. Throws
  /// OutputError when results or tensors cannot be written.
  void step(int beside);
  void watch(std::vector<pollfd>& descriptors) const;
  /// Has its worker, if there is one, killed.
  void kill();

 private:
  using Clock = WorkerHandle::Clock;

  /// What the worker says that it is at.
  struct Place {
    std::size_t job;
    Stage stage;
  };
  void start();
  void send_unit();
  bool is_done(const Unit& unit) const;
  void read_lines(int beside);
  /// False for a worker's last words.
  bool handle(const Message& message, int beside);
  void check_given(std::size_t job) const;
  void finish(std::size_t job, const std::string& record, int beside);
  /// From here on its worker has to end. `why`: what it is blamed for, however it ends; nothing: for how it
  /// ends, where that `is_blamed` at all.
  void end(Clock::duration grace, bool is_blamed, std::optional<Explanation> why = {});
  void conclude(const WorkerHandle::Ending& ending);
  /// Puts a death down to what it happened at.
  void blame(const Explanation& death);
  /// For what it is at, or while it waits, for its next word.
  double seconds_allowed() const;
  /// Charges the time since the last message to the job that it was about.
  void charge();
  /// When what the worker is at has taken too long. What other jobs took in between does not count.
  Clock::time_point deadline() const;

  std::size_t number_;
  SlotPlace place_;
  std::string orders_;
  const SlotOptions& how_;
  JobBooks& books_;
  RunClock& clock_;

  std::unique_ptr<WorkerHandle> worker_;
  std::optional<Unit> unit_;
  bool is_waiting_ = false;                      ///< for others to leave it the host
  std::optional<Place> place_of_;                ///< none between jobs
  Clock::time_point since_;                      ///< there
  std::map<std::size_t, double> spent_seconds_;  ///< by this worker, on the run of each job before that
  std::map<std::size_t, int> beside_;            ///< the most while each job ran
  bool has_finished_some_ = false;               ///< this worker
  int deaths_at_start_ = 0;                      ///< in a row
  bool is_ending_ = false, is_blamed_ = false;
  std::optional<Explanation> blamed_for_;
  std::string out_of_service_;
};

}  // namespace ssmbench
