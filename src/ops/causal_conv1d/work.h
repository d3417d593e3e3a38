#pragma once

#include "model/problem.h"

namespace ssmbench {

/// The least work of a launch of each operation. Of the slots of a cache only those count that a row reads
/// or writes, and of these what the convolution and the new state need.
Work conv_fwd_least_work(const Problem& problem, Math math);
Work conv_bwd_least_work(const Problem& problem, Math math);
Work conv_update_least_work(const Problem& problem, Math math);

}  // namespace ssmbench
