#pragma once

#include "model/parts.h"

namespace ssmbench {

/// A scan as decoding steps, one after the other.
PartwiseComputation scan_in_steps();
/// A scan as two of half the length, the state carried from one to the other.
PartwiseComputation scan_in_halves();
/// Each step as the decoding step after a scan of those before it.
PartwiseComputation scan_then_steps();
/// The sequences that are packed into a scan, each on its own.
PartwiseComputation scan_in_sequences();

}  // namespace ssmbench
