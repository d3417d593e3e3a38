#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "check/judged_output.h"

namespace ssmbench {

/// How large the errors of one output are, and where they begin.
struct ErrorProfile {
  /// Upper ends, in ulps of the output's dtype at the expected value, of all bins but the last two: larger,
  /// and not finite.
  static constexpr std::array<double, 8> kUlps{0, 0.5, 1, 2, 4, 16, 256, 65536};
  std::array<std::int64_t, kUlps.size() + 2> histogram{};

  std::int64_t left_out = 0;  ///< elements of which nothing can be asked (verify/element.h)
  std::int64_t bad = 0;       ///< elements out of tolerance
  /// The first of them: the earliest step, and in logical order within it.
  std::optional<Shape> first_bad;
};

ErrorProfile profile_of(const JudgedOutput& output, const Expectation& expected);

}  // namespace ssmbench
