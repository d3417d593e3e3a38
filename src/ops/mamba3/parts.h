#pragma once

#include "model/parts.h"

namespace ssmbench {

/// A scan as decoding steps, one after the other.
PartwiseComputation mamba3_in_steps();
/// A scan as two of half the length, the states carried from one to the other; `op` is that of the scan.
PartwiseComputation mamba3_in_halves(const char* op);
/// Packed sequences each on its own.
PartwiseComputation mamba3_in_sequences(const char* op);

}  // namespace ssmbench
