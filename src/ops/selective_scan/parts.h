#pragma once

#include "model/parts.h"

namespace ssmbench {

/// A scan as decoding steps, one after the other.
PartwiseComputation scan_in_steps();
/// A scan as two of half the length, the state carried from one to the other.
PartwiseComputation scan_in_halves();

}  // namespace ssmbench
