#pragma once

#include "model/implementation.h"

namespace ssmbench {

/// What a CPU rank computes a problem of its own with: cpu-simd where it does the problem, else cpu-scalar.
/// Null where neither does.
const Implementation* host_implementation(const Problem& problem);

}  // namespace ssmbench
