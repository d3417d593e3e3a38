#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "model/axis.h"

namespace ssmbench {

/// What a launch finds.
struct LaunchConditions {
  unsigned char garbage = 0;  ///< in each rank's workspace
  bool flush_cache = false;   ///< of each rank's device, before the ranks meet
  double idle_ms = 0;         ///< Device::time_launch
};

/// What rank 0 of a team has the other ranks do, while it does the same.
struct RankOrder {
  enum class Kind {
    bind,      ///< `implementation` to the rank's parts of the problem
    launch,    ///< a run
    settle,    ///< a run: what goes on is to end, and its outputs are collected again
    links,     ///< measure_links (link_ceilings.h)
    exchange,  ///< what the last launch of a run sent and received
    release,   ///< a run: it is not launched any more
  };
  Kind kind = Kind::bind;
  std::size_t run = 0;  ///< the number of what is bound
  std::string implementation = {};
  std::string op = {};
  std::map<std::string, AxisValue> axes = {};  ///< Problem::axes
  LaunchConditions conditions = {};
};

}  // namespace ssmbench
