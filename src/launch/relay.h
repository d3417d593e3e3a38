#pragma once

#include <string>
#include <vector>

#include "launch/ranks.h"

namespace ssmbench {

/// What every rank but the leader does: starts a worker with these arguments, kills it, and passes orders and
/// lines on, all as the leader says by its RemoteWorker. Returns when the leader dismisses it.
void relay(Ranks& ranks, const std::vector<std::string>& worker_argv);

}  // namespace ssmbench
