#pragma once

#include <atomic>

#include "cli/run_options.h"
#include "cli/tensor_dump.h"
#include "report/progress.h"
#include "sweep/run_listener.h"

namespace ssmbench {

/// Runs jobs of a plan in worker processes, or in this one with --no-supervision. `dump` may be null. Throws
/// Interrupted once `stop` is set, OutputError when results or tensors cannot be written.
void execute_plan(const RunOptions& options, const Plan& plan, const JobSet& jobs, RunListener& listener,
                  TensorDump* dump, Progress& progress, const std::atomic<bool>& stop);

/// Planning calls into plugins. Does it once in a process of its own, and throws DeviceError, which names the
/// plugins, when that crashes or takes longer than --timeout.
void rehearse_planning(const RunOptions& options);

/// What such a worker process does: `run --worker`. Returns the exit code.
int run_as_worker(const RunOptions& options, const Plan& plan);

}  // namespace ssmbench
