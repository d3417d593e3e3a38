#pragma once

#include <string>
#include <vector>

#include "team/team_device.h"

namespace ssmbench {

/// Starts ranks as processes of this executable with these arguments (those of a worker), which die with this
/// process. They share the CPUs that it may use.
StartRanks ranks_as_children(std::vector<std::string> worker_argv);

}  // namespace ssmbench
