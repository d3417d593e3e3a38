#pragma once

#include <optional>

#include "model/arithmetic.h"
#include "model/expectation.h"
#include "model/tensor.h"
#include "record/result.h"

namespace ssmbench {

/// Whether values that are rounded stochastically are right in the mean. A value h between the neighbours low
/// and high becomes high with probability f = (h − low)/(high − low), so that u = (stored − low)/(high − low)
/// less f has mean 0 and variance f·(1 − f). Σ(u − f), and the same with the signs of the values, is compared
/// with what chance explains: over all elements, over those of one binade, and over those with one index
/// along the last axis. Errors on the way, within the bound, shift f by their share of the distance. Elements
/// without a finite bound, or that are not finite, are left out. docs/tolerances.md derives the limit.
/// Returns the sum that is furthest from 0, in units of its limit; nothing where there are no elements.
std::optional<OutputComparison::RoundingBias> rounding_bias(const TensorView& output,
                                                            const Expectation& expected,
                                                            const Arithmetic& arithmetic);

}  // namespace ssmbench
