#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ssmbench {

/// Philox4x32-10 of `calls` counters (first + i, as two words; name, as two words), low words first: four
/// words of each, one after the other. SIMD, the same bits whatever its width.
void philox_calls(const std::array<std::uint32_t, 2>& key, std::uint64_t name, std::uint64_t first,
                  std::size_t calls, std::uint32_t* words);

/// The normal quantile of each word w, as (w + ½)/2³². The same bits whatever the width of SIMD.
void normal_quantiles(const std::uint32_t* words, std::size_t count, double* values);

}  // namespace ssmbench
