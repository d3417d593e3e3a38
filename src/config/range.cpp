#include "config/range.h"

#include <fmt/format.h>

#include <stdexcept>

namespace ssmbench {

std::vector<std::int64_t> values_of(const Range& range) {
  const auto& [from, to, step, times] = range;
  if (from < 0) throw std::invalid_argument(fmt::format("the range starts below 0, at {}", from));
  if (from > to)
    throw std::invalid_argument(fmt::format("the range is empty: from {} is above to {}", from, to));
  if (step < 1 && times < 2) throw std::invalid_argument("the range does not advance");
  if (step < 1 && from == 0) throw std::invalid_argument("a range that multiplies does not leave 0");

  std::vector<std::int64_t> values{from};
  // Compared before advancing, so that nothing overflows near the largest integer.
  while (step > 0 ? values.back() <= to - step : values.back() <= to / times) {
    if (values.size() == kMaxCases)
      throw std::invalid_argument(fmt::format("the range has more than {} values", kMaxCases));
    values.push_back(step > 0 ? values.back() + step : values.back() * times);
  }
  return values;
}

}  // namespace ssmbench
