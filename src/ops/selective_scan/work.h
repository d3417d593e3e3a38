#pragma once

#include "model/problem.h"

namespace ssmbench {

/// The least work of selective_scan_fwd and _bwd (OpSpec::least_work). There are no matrix products.
Work scan_least_work(const Problem& problem, Math math);
Work scan_bwd_least_work(const Problem& problem, Math math);

}  // namespace ssmbench
