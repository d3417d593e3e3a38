#pragma once

#include "reference/reference.h"

namespace ssmbench {

/// compute_reference for ssd_chunk_scan_bwd: the adjoint of the sequential recurrence.
ReferenceOutputs ssd_chunk_scan_bwd_reference(const Problem& problem, const TensorSet& inputs,
                                              const std::atomic<bool>& stop);

/// Bytes that it takes beside its outputs at the peak.
std::size_t ssd_chunk_scan_bwd_working_bytes(const Problem& problem);

}  // namespace ssmbench
