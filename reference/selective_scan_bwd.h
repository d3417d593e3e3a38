#pragma once

#include "reference/reference.h"

namespace ssmbench {

/// All gradients of selective_scan, in fp64, bitwise the same for any number of threads. See
/// reference/reference.h.
ReferenceOutputs selective_scan_bwd_reference(const Problem& problem, const TensorSet& inputs,
                                              const std::atomic<bool>& stop);

}  // namespace ssmbench
