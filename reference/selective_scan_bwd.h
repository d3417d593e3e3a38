#pragma once

#include "reference/reference.h"

namespace ssmbench {

/// All gradients of selective_scan, in fp64, bitwise the same for any number of threads. See
/// reference/reference.h.
ReferenceOutputs selective_scan_bwd_reference(const Problem& problem, const TensorSet& inputs,
                                              const std::atomic<bool>& stop);

/// Bytes that it allocates at its peak beside the outputs: checkpoints, sums and each thread's tile.
std::size_t selective_scan_bwd_working_bytes(const Problem& problem);

}  // namespace ssmbench
