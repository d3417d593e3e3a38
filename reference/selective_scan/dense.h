#pragma once

#include "reference/reference.h"

namespace ssmbench {

/// selective_scan_fwd with dense A in fp64: sequential in time, threads over (batch, channel). Where I − ΔA/2
/// of the bilinear rule is singular, exactly or to fp64, the state and every output from that step on are NaN
/// with infinite bounds, and the outputs' note names (b, d, t).
ReferenceOutputs selective_scan_dense_reference(const Problem& problem, const TensorSet& inputs,
                                                const std::atomic<bool>& stop);

}  // namespace ssmbench
