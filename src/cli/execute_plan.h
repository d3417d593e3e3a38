#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "cli/run_options.h"
#include "cli/run_slots.h"
#include "cli/tensor_dump.h"
#include "supervise/worker.h"
#include "sweep/run_listener.h"

namespace ssmbench {

/// Runs jobs of a plan in worker processes in these slots, or in this one with --no-supervision. `dump` may
/// be null. Throws Interrupted once `stop` is set, OutputError when results or tensors cannot be written.
void execute_plan(const RunOptions& options, const Plan& plan, const RunSlots& slots, const JobSet& jobs,
                  RunListener& listener, TensorDump* dump, Progress& progress, const std::atomic<bool>& stop);

/// Loading and planning call into plugins. Does what the command line `argv` does of it once in a process of
/// its own, which answers by finish_rehearsal(), and throws DeviceError, which names the plugins, when that
/// crashes or takes longer.
void rehearse_plugins(const std::vector<std::string>& argv, const std::vector<std::string>& plugins,
                      double timeout_seconds);

/// What such a process does, with --rehearse: `work`, whose failures its parent meets too, and says.
int finish_rehearsal(const std::function<void()>& work);

/// What such a worker process does with its plan: `run --worker`. Returns the exit code.
int run_as_worker(const RunOptions& options, const Plan& plan, WorkerProcess& worker);

}  // namespace ssmbench
