#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ssmbench {

/// More values of an axis, or more cases of a sweep, than anyone waits for.
inline constexpr std::size_t kMaxCases = 100'000;

/// from, from + step, … or from, from · times, …, up to and including `to`.
struct Range {
  std::int64_t from = 1;
  std::int64_t to = 1;
  std::int64_t step = 0;   ///< ≥ 1; 0 when `times` is given
  std::int64_t times = 0;  ///< ≥ 2; 0 when `step` is given
};

/// The range's values. Throws std::invalid_argument, saying why, when it is empty, never ends, starts below
/// zero or has more than kMaxCases values.
std::vector<std::int64_t> values_of(const Range& range);

}  // namespace ssmbench
