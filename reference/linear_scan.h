#pragma once

#include "reference/reference.h"

namespace ssmbench {

/// linear_scan in fp64: sequential in time, threads over blocks of channels.
ReferenceOutputs linear_scan_reference(const Problem& problem, const TensorSet& inputs,
                                       const std::atomic<bool>& stop);

}  // namespace ssmbench
