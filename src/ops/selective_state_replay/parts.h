#pragma once

#include "model/parts.h"

namespace ssmbench {

/// Tokens of the ring and new ones as decoding steps one after the other.
PartwiseComputation replay_as_steps();

}  // namespace ssmbench
