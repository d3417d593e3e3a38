#include "check/error_profile.h"

#include <algorithm>
#include <cmath>

namespace ssmbench {
namespace {

std::size_t bin_of(const ElementVerdict& element, const ExpectedElement& expected, DType dtype) {
  if (element.kind == ElementVerdict::Kind::wrong) return ErrorProfile::kUlps.size() + 1;
  const double ulps = element.error == 0 ? 0 : element.error / spacing(expected, dtype);
  const auto* const found = std::ranges::lower_bound(ErrorProfile::kUlps, ulps);
  return static_cast<std::size_t>(found - ErrorProfile::kUlps.begin());
}

}  // namespace

ErrorProfile profile_of(const JudgedOutput& output, const Expectation& expected) {
  ErrorProfile profile;
  const auto time = output.axis(kTimeLetter);
  std::int64_t inner = 1;  // elements between neighbours in time
  for (std::size_t axis = output.shape.size(); time && axis-- > *time + 1;) inner *= output.shape[axis];
  const std::int64_t steps = time ? output.shape[*time] : 1;

  std::int64_t first_step = steps;
  std::int64_t first = 0;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(output.elements.size()); ++i) {
    const ElementVerdict& element = output.elements[i];
    if (element.kind == ElementVerdict::Kind::left_out) {
      ++profile.left_out;
      continue;
    }
    ++profile.histogram.at(bin_of(element, expected.at(i), output.dtype));
    if (element.passed()) continue;
    ++profile.bad;
    const std::int64_t step = i / inner % steps;
    if (step >= first_step) continue;
    first_step = step;
    first = i;
  }
  if (profile.bad > 0) profile.first_bad = index_of(first, output.shape);
  return profile;
}

}  // namespace ssmbench
