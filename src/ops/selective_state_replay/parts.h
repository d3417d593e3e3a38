#pragma once

#include "model/parts.h"

namespace ssmbench {

/// Tokens of the ring and new ones as decoding steps one after the other.
PartwiseComputation replay_as_steps();
/// The same with garbage in all slots that source does not name, which have to keep it.
PartwiseComputation replay_in_slots();

}  // namespace ssmbench
