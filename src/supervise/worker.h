#pragma once

#include <functional>
#include <future>
#include <memory>
#include <optional>

#include "supervise/protocol.h"
#include "supervise/slot_share.h"
#include "sweep/runner.h"

namespace ssmbench {

/// Called for each job that produced outputs, with its number.
using NumberedHook = std::function<void(std::size_t job, const FinishedJob&)>;

/// This process dies with its supervisor from now on.
void tie_to(int supervisor);

/// This process as a worker.
class WorkerProcess {
 public:
  /// Reads its first orders, goes to its cores, and waits until its host is not somebody else's alone: what
  /// comes next computes. Begins to open its GPU. Throws UsageError where there are no orders, DeviceError.
  WorkerProcess();

  const WorkerOrders& orders() const { return orders_; }
  /// Whether it is a rank of a team, for which its supervisor runs the jobs.
  bool is_rank() const { return !orders_.team.empty(); }
  /// What such a rank does. Returns the exit code.
  int follow();
  /// Runs the jobs of its orders, sends what comes of them to its supervisor, with which it dies, and
  /// returns the exit code when there are no more.
  int run(const Plan& plan, RunnerOptions options, const NumberedHook& hook);

 private:
  /// Waits until its GPU is open. One that does not work is not to go through all cases of the run: says that it
  /// leaves, and throws DeviceError.
  void wait_for_gpu();

  WorkerOrders orders_;
  std::function<void(bool)> waits_;  ///< SlotShare
  std::optional<SlotShare> share_;   ///< none where it is the only worker
  std::shared_ptr<void> working_;
  std::future<void> opening_;  ///< of its GPU, while inputs are made; invalid once that was waited for
};

}  // namespace ssmbench
