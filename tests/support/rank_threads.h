#pragma once

#include <functional>
#include <string>

#include "model/communicator.h"

namespace ssmbench::test {

/// Runs body(communicator of host memory) as `ranks` threads of this process, since a process that has used a
/// GPU cannot be forked. What they threw, a line each; empty where all went well.
std::string run_rank_threads(int ranks, const std::function<void(Communicator&)>& body);

}  // namespace ssmbench::test
