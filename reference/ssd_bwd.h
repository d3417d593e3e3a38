#pragma once

#include "reference/reference.h"

namespace ssmbench {

/// compute_reference for ssd_chunk_scan_bwd: the adjoint of the sequential recurrence.
ReferenceOutputs ssd_chunk_scan_bwd_reference(const Problem& problem, const TensorSet& inputs,
                                              const std::atomic<bool>& stop);

}  // namespace ssmbench
