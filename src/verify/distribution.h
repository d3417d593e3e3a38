#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "model/dtype.h"
#include "verify/tolerance.h"

// What the errors of an output are like as a whole. Roundings are independent and have zero mean (Higham &
// Mary, "A New Approach to Probabilistic Rounding Error Analysis", 2019), so that errors stay well below the
// bound that no element may exceed, and what every step does wrong by a little shows in all of them together.
// docs/tolerances.md derives the constants.

namespace ssmbench {

/// The root mean square that the arithmetic's error of an element is expected to have at most, as a share of
/// its tolerance.
inline constexpr double kExpectedShare = 0.25;
/// Largest mean relative error of the decays of a recurrence, in roundoffs. Roundings to nearest have half of
/// one at most where all decays lie next to 1 and round alike.
inline constexpr double kDecayBias = 0.75;

/// About how many different numbers there are among those added, up to some 30000: by the share of the bits
/// of a small table that their hashes leave unset. Source: Whang, Vander-Zanden & Taylor, "A linear-time
/// probabilistic counting algorithm for database applications" (1990).
class DistinctNumbers {
 public:
  void add(double number);
  void add(const DistinctNumbers& other);
  /// Infinite when too many.
  double count() const;

 private:
  std::array<std::uint64_t, 64> bits_{};
};

/// Sums over the elements of an output that have been measured.
class ErrorDistribution {
 public:
  /// `error` = got − expected; `tolerance` that of the element. `response`: what a relative error of 1 in
  /// every decay would do to the element.
  void add(double error, const ExpectedElement& element, const Tolerance& tolerance, DType dtype,
           std::optional<float> response);
  void add(const ErrorDistribution& part);

  /// Root mean square of the errors, each in units of what is expected of it, over what that may be of so
  /// many elements; at most 1 passes.
  double rms_ratio() const;

  struct DecayBias {
    double mean;   ///< relative error, in roundoffs
    double ratio;  ///< of it to what it may be; at most 1 passes
  };
  /// Mean relative error of the decays as the errors show it; nothing where they do not. `roundoff`: of the
  /// arithmetic.
  std::optional<DecayBias> decay_bias(double roundoff) const;

 private:
  /// Σ r², Σ r·x and Σ x² over elements, r the response and x the expected value in units of the error that
  /// is expected of the element.
  struct Squares {
    double rr = 0, rx = 0, xx = 0;

    void add(const Squares& more, double weight = 1);
    double determinant() const { return rr * xx - rx * rx; }
  };
  /// Neighbours whose expected values are within an ulp of the first one's. They are rounded alike when they
  /// are stored, so that all of their errors together tell no more than one of them.
  struct Run {
    double first = 0;
    double count = 0;
    Squares squares = {};
  };

  void end_run();
  /// The same with the last run ended.
  ErrorDistribution ended() const;
  /// How many errors there are that are not copies of others, as they are where inputs repeat or outputs
  /// hardly change from one element to the next.
  double independent() const;

  std::int64_t count_ = 0;
  DistinctNumbers distinct_;
  double squares_ = 0;  // Σ e², of errors in units of what is expected
  // Normal equations of e ≈ θ·response + φ·expected, each in units of what is expected of the element.
  Squares normal_;
  double re_ = 0, xe_ = 0;
  Run run_;                  // the one that the last element belongs to
  double squared_runs_ = 0;  // Σ count² of the runs before it
  Squares by_run_;           // Σ of their squares, each times the elements of its run
};

}  // namespace ssmbench
