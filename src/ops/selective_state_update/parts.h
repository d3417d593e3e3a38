#pragma once

#include "model/parts.h"

namespace ssmbench {

/// Form mamba2 as form mamba1, with dt, A, D and dt_bias repeated over the head.
PartwiseComputation heads_as_channels();

/// Tokens as steps one after the other, each from the state that the one before left, and a state that
/// starts in a slot as a state of its own. States are f32: others are rounded between steps and not between
/// tokens.
PartwiseComputation tokens_as_steps();

/// States that are rounded stochastically with another seed: right too, and not the same bits.
PartwiseComputation other_seed();
/// The same with garbage in all slots that source and destination do not name, which have to keep it.
PartwiseComputation slots_that_nobody_names();

}  // namespace ssmbench
