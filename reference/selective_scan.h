#pragma once

#include "reference/reference.h"

namespace ssmbench {

/// selective_scan_fwd in fp64: sequential in time, threads over blocks of channels, SIMD lanes over the
/// channels of a block. Any layout, every option.
ReferenceOutputs selective_scan_fwd_reference(const Problem& problem, const TensorSet& inputs,
                                              const std::atomic<bool>& stop);

}  // namespace ssmbench
