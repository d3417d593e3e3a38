#pragma once

#include <cstddef>

namespace ssmbench::simd {

/// Widest vector used, in floats.
inline constexpr std::size_t kMaxLanes = 16;

}  // namespace ssmbench::simd
