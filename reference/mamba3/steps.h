#pragma once

#include <cstdint>
#include <vector>

#include "model/tensor.h"
#include "ops/mamba3/mamba3.h"
#include "reference/common/rounded.h"

namespace ssmbench {

/// Steps [begin, end) of batch `batch`, whose states are those of `index`.
struct Mamba3Sequence {
  std::int64_t index, batch, begin, end;
};

/// Throws UsageError where cu_seqlens does not end at seqlen.
std::vector<Mamba3Sequence> mamba3_sequences(const Mamba3& scan, const TensorSet& inputs);

/// The scalars of a time step of one head, errors in roundoffs of an implementation.
struct Mamba3Step {
  double decay = 0;             ///< α
  double decay_error = 0;       ///< relative, where it is formed from cumulative sums within a chunk
  double cumulative_error = 0;  ///< as SsdStep::cumulative_error
  Rounded<double> dt;
  Rounded<double> open;      ///< λ
  Rounded<double> closed;    ///< 1 − λ
  Rounded<double> own;       ///< γ = λ·DT
  Rounded<double> previous;  ///< (1 − λ)·DT = β/α
};

std::vector<Mamba3Step> mamba3_steps(const Mamba3& scan, const TensorSet& inputs,
                                     const Mamba3Sequence& sequence, std::int64_t head);

/// Errors of an elementwise product π·tanh(x)·DT in roundoffs: tanh, π, two products.
inline constexpr double kIncrementError = 6;
/// Errors of a rotated number in roundoffs of the length of its pair: the sum with the bias, and sine and
/// cosine, their products and their sum.
inline constexpr double kRotationError = 7;

/// The angles of one head as they go through time, with what an implementation may get wrong. An increment
/// is off by kIncrementError roundoffs of itself; a sum of angles that are reduced mod 2π, in any order,
/// rounds at 2π at most, once a step. These errors are independent but for what all share (Higham & Mary
/// 2019; rounded.h).
class Mamba3Angles {
 public:
  /// `start`: θ_{-1}, null for zeros.
  Mamba3Angles(std::int64_t count, const float* start);

  /// One step with increments DT·π·tanh(rates).
  void advance(double step, const double* rates);

  double angle(std::int64_t i) const { return angle_[i]; }  ///< not reduced
  const double* cosines() const { return cosine_.data(); }
  const double* sines() const { return sine_.data(); }
  /// Bound on the error of angle i itself.
  double error(std::int64_t i) const;
  /// Bound, for all angles, on what the step at hand adds to the error of a difference of two angles.
  double drift() const { return drift_; }
  /// The largest angle that can be rounded.
  double size() const { return size_; }

 private:
  double size_of(std::int64_t i) const;

  std::int64_t steps_ = 0;
  std::vector<double> start_, angle_, cosine_, sine_;
  std::vector<double> way_;  // Σ |increment|
  std::vector<double> squared_errors_;
  double drift_ = 0, size_ = 0;
};

}  // namespace ssmbench
