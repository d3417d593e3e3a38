#pragma once

#include <vector>

#include "model/problem.h"

namespace ssmbench {

std::vector<TensorSpec> tensors_of(const Problem& problem, Role role);
/// The outputs in f64; complex ones with a further axis, innermost, of (real, imaginary), so that numpy reads
/// them with .view(complex).
std::vector<TensorSpec> reference_tensors_of(const Problem& problem);

}  // namespace ssmbench
