#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "supervise/job_books.h"
#include "supervise/slot.h"
#include "sweep/runner_options.h"
#include "sweep/units.h"

namespace ssmbench {

struct SupervisorOptions {
  /// One without a name, or several, each with a name of its own.
  std::vector<SlotPlace> slots;
  std::map<std::string, std::size_t> host_bytes =
      {};  ///< of memory that there is for cases, by SlotPlace::host
  SlotOptions slot = {};
  std::string dump_folder;  ///< for the workers' dump_parts; empty: none
  /// Called before a job's result is passed on.
  std::function<void(std::size_t job)> collect = [](std::size_t) {};
  /// How long to wait for messages at most until `look`, which is called then, has to look for more.
  std::chrono::milliseconds look_every{200};
  std::function<void()> look = [] {};
};

/// Runs jobs in the workers of one slot or several. Several are handed units, the largest that is left to the
/// next that is free, as far as memory reaches; one has them all, in the plan's order.
class Supervisor {
 public:
  Supervisor(const Plan& plan, const RunnerOptions& options, SupervisorOptions how, RunListener& listener,
             const std::atomic<bool>& stop)
      : plan_(plan), options_(options), how_(std::move(how)), listener_(listener), stop_(stop) {}

  /// Throws Interrupted once `stop` is set, OutputError when results or tensors cannot be written. No
  /// worker is left afterwards.
  void run(JobSet jobs);

 private:
  bool is_pool() const { return !how_.slots.front().name.empty(); }
  void fill_queue(const JobSet& jobs);
  void hand_out(std::vector<Slot>& slots);
  bool fits(const Unit& unit, const std::string& host, const std::vector<Slot>& slots) const;
  /// Takes back what slots that are out of service have not done.
  void take_back(std::vector<Slot>& slots, JobBooks& books);
  void wait(const std::vector<Slot>& slots) const;

  const Plan& plan_;
  const RunnerOptions& options_;
  SupervisorOptions how_;
  RunListener& listener_;
  const std::atomic<bool>& stop_;
  std::deque<Unit> queue_;
};

}  // namespace ssmbench
