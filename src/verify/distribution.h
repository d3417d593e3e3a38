#pragma once

#include <cstdint>
#include <optional>

#include "model/dtype.h"
#include "verify/tolerance.h"

// What the errors of an output are like as a whole. Roundings are independent and have zero mean (Higham &
// Mary, "A New Approach to Probabilistic Rounding Error Analysis", 2019), so that errors stay well below the
// bound that no element may exceed, and what every step does wrong by a little shows in their sum.

namespace ssmbench {

/// What the arithmetic's error of an element is expected to be at most in the root mean square, as a share of
/// its tolerance. docs/tolerances.md has the theory and what implementations show.
inline constexpr double kExpectedShare = 0.25;

/// Largest mean relative error of the decays of a recurrence, in roundoffs.
inline constexpr double kDecayBias = 0.75;

/// Sums over the elements of an output that have been measured.
class ErrorDistribution {
 public:
  /// `error` = got − expected, with its sign; `tolerance` that of the element. `response`: what a relative
  /// error of one unit in every decay would do to the element.
  void add(double error, double expected, const Tolerance& tolerance, DType dtype,
           std::optional<double> response);
  void add(const ErrorDistribution& part);

  /// Root mean square of the errors, each in units of what is expected of it, over what that may be of so
  /// many elements; at most 1 passes.
  double rms_ratio() const;

  /// Mean relative error of the decays, estimated from the errors; nothing where they say nothing about it.
  struct DecayBias {
    double mean;   ///< in units of the response
    double noise;  ///< its standard error at most
  };
  std::optional<DecayBias> decay_bias() const;

 private:
  std::int64_t count_ = 0;
  double squares_ = 0;  // Σ e², of errors in units of what is expected
  // Normal equations of e ≈ θ·response + φ·expected, each over what is expected of the element.
  double rr_ = 0, rx_ = 0, xx_ = 0, re_ = 0, xe_ = 0;
};

}  // namespace ssmbench
