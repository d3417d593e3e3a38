#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "verify/distribution.h"

namespace ssmbench {

/// Whether the numbers of an f32 output have been rounded to fewer bits on the way, as a state is that went
/// through bf16. Over long memories such an error is smaller than what rounding may add up to, but it shows
/// in the bits: of numbers whose expected value is far from every short one, one in 2^(24 − bits) is short by
/// chance. docs/tolerances.md says how often that is mistaken.
class ShortNumbers {
 public:
  /// An element that was measured; both finite.
  void add(double got, double expected);
  void add(const ShortNumbers& part);

  /// The significand bits that nearly all of the numbers fit in; nothing where they need f32, or where there are
  /// too few to tell. Formats whose roundoff is not above `claimed` are not looked for.
  std::optional<int> bits(double claimed) const;

 private:
  struct Format {
    std::int64_t far = 0;        ///< elements that should not fit by far, and are near to what they should be
    std::int64_t fitting = 0;    ///< those of them that fit
    DistinctNumbers distinct{};  ///< of these
  };
  std::array<Format, 2> formats_;
};

}  // namespace ssmbench
