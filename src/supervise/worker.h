#pragma once

#include <functional>

#include "supervise/protocol.h"
#include "sweep/runner.h"

namespace ssmbench {

/// Called for each job that produced outputs, with its number.
using NumberedHook = std::function<void(std::size_t job, const FinishedJob&)>;

/// This process dies with its supervisor from now on.
void tie_to(int supervisor);

/// The life of a worker process: runs the jobs of its orders and sends what comes of them to its supervisor,
/// with which it dies. Returns the exit code.
int run_worker(const Plan& plan, const RunnerOptions& options, const WorkerOrders& orders,
               const NumberedHook& hook);

}  // namespace ssmbench
