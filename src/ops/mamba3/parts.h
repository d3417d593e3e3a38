#pragma once

#include "model/parts.h"

namespace ssmbench {

/// A scan as decoding steps, one after the other.
PartwiseComputation mamba3_in_steps();
/// A scan as two of half the length, the states carried from one to the other; `op` is that of the scan.
PartwiseComputation mamba3_in_halves(const char* op);
/// Packed sequences each on its own.
PartwiseComputation mamba3_in_sequences(const char* op);
/// Any of the operations with angles of the other sign, and the second member of each pair too: the same
/// results, mirrored. A wrong sign or pairing of q or k breaks it.
PartwiseComputation mamba3_mirrored(const char* op);
/// SISO as MIMO of one rank; `op` is that of MIMO.
PartwiseComputation mamba3_with_one_rank(const char* op);

}  // namespace ssmbench
