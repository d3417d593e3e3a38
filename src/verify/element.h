#pragma once

#include "model/arithmetic.h"
#include "model/expectation.h"
#include "verify/tolerance.h"

namespace ssmbench {

/// What is to be said about one element of an output.
struct ElementVerdict {
  enum class Kind {
    left_out,  ///< its bound is not finite: an honest implementation may overflow on the way
    infinite,  ///< the infinity that the expected value becomes in the output's dtype; or not finite where a
               ///< NaN was expected
    wrong,     ///< NaN or Inf where a finite value was expected, or finite where a NaN was
    measured,  ///< finite: error and ratio say how far off
  };
  Kind kind = Kind::left_out;
  double error = 0;          ///< |got − expected|
  double ratio = 0;          ///< of error to tolerance; passes up to 1. Infinite when kind is wrong
  Tolerance tolerance = {};  ///< when measured

  bool passed() const { return ratio <= 1; }
};

/// `dtype` is the output's, `arithmetic` what the implementation claims.
ElementVerdict judge_element(double got, const ExpectedElement& expected, DType dtype,
                             const Arithmetic& arithmetic);
/// By a given tolerance.
ElementVerdict judge_element(double got, const ExpectedElement& expected, DType dtype,
                             const Tolerance& allowed);

}  // namespace ssmbench
