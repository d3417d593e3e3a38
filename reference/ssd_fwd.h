#pragma once

#include "reference/reference.h"

namespace ssmbench {

/// compute_reference for ssd_chunk_scan_fwd: the sequential recurrence, whatever the chunk_size.
ReferenceOutputs ssd_chunk_scan_fwd_reference(const Problem& problem, const TensorSet& inputs,
                                              const std::atomic<bool>& stop);

}  // namespace ssmbench
