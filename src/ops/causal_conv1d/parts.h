#pragma once

#include "model/parts.h"

namespace ssmbench {

/// A convolution as decoding steps, one after the other.
PartwiseComputation conv_in_steps();
/// Each step as the decoding step after a convolution of those before it.
PartwiseComputation conv_then_steps();
/// A convolution as two of half the length, the state handed over.
PartwiseComputation conv_in_halves();
/// A convolution as one of a single step for each step, split at every place with the state handed over.
PartwiseComputation conv_split_everywhere();
/// Packed sequences each on its own, with zeros in the place of the others.
PartwiseComputation conv_in_sequences();
/// An update of several tokens as one update a token.
PartwiseComputation conv_token_by_token();
/// The same with garbage in all slots that source and destination do not name, which have to keep it.
PartwiseComputation conv_in_slots();

}  // namespace ssmbench
