#pragma once

#include <random>

#include "model/arithmetic.h"
#include "model/expectation.h"
#include "model/tensor.h"
#include "model/user_tolerance.h"

namespace ssmbench {

/// Whether the elements of some parts of an output, drawn at random, are within their tolerances, as
/// compare_output has it; of a small output all are. Takes a few milliseconds at most, however large it is.
bool sample_passes(const TensorView& output, const Expectation& expected, const Arithmetic& arithmetic,
                   const UserTolerance* user, std::mt19937_64& random);

}  // namespace ssmbench
