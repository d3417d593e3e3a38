#pragma once

#include "model/parts.h"

namespace ssmbench {

/// A scan as decoding steps, one after the other.
PartwiseComputation ssd_in_steps();
/// Each step as the decoding step after a scan of those before it.
PartwiseComputation ssd_then_steps();
/// A scan as two of half the length, the state carried from one to the other.
PartwiseComputation ssd_in_halves();
/// Packed sequences each on its own.
PartwiseComputation ssd_in_sequences();
/// States on the way as the last ones of scans that end there.
PartwiseComputation ssd_in_prefixes();
/// Mamba-2's scan as Mamba-1's, with dt, A, D and dt_bias repeated over the head.
PartwiseComputation ssd_as_scan();

}  // namespace ssmbench
