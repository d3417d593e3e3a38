#include "reference/selective_scan/dense_step.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ssmbench {

DenseSystem::DenseSystem(MethodId method, const Matrix& A)
    : method_(method),
      A_(A),
      roundings_(2 + std::sqrt(static_cast<double>(A.n))),
      norm_(std::max(norm_1(A), norm_infinity(A))) {
  if (method == MethodId::foh) exponential_.emplace(A);
}

std::optional<DenseStep> DenseSystem::step(StepSize size, const Vector& h, const Vector& h_error,
                                           const Vector& input) const {
  constexpr double kRoundoff = 0x1p-23;  // of f32, twice, as tolerances have it
  Vector h_size{};
  for (int i = 0; i < A_.n; ++i) h_size[i] = std::abs(h[i]) + kRoundoff * h_error[i];
  if (method_ == MethodId::foh) return hold(size, h, h_size, input);
  return bilinear(size, h, h_size, input);
}

std::optional<DenseStep> DenseSystem::bilinear(StepSize size, const Vector& h, const Vector& h_size,
                                               const Vector& input) const {
  const int n = A_.n;
  const double d = size.delta;
  Matrix M = Matrix::identity(n);
  Vector right{};
  Vector rate = magnitude_product(A_, h);
  for (int i = 0; i < n; ++i) {
    right[i] = h[i] + d * input[i];
    for (int j = 0; j < n; ++j) {
      M[i][j] -= d / 2 * A_[i][j];
      right[i] += d / 2 * A_[i][j] * h[j];
    }
    rate[i] = std::abs(d) * (rate[i] + std::abs(input[i]));
  }
  const LU lu(M);
  if (lu.singular()) return {};
  Matrix inverse = lu.inverse();
  // Within rounding of a singular matrix: nothing that fp64 computes is right.
  if (norm_1(M) * norm_1(inverse) * n * std::numeric_limits<double>::epsilon() >= 1) return {};

  DenseStep step{lu.solve(right), inverse, {}};
  Vector largest{};
  for (int i = 0; i < n; ++i) largest[i] = std::max(h_size[i], std::abs(step.state[i]));
  const Vector factorization = lu.magnitude_product(largest);
  const Vector entries = magnitude_product(A_, largest);
  Vector local{};
  for (int i = 0; i < n; ++i)
    local[i] = (size.relative_error + 1 + roundings_) * rate[i] + 2 * std::abs(h[i]) +
               (size.relative_error + 1) * std::abs(d / 2) * entries[i] + std::abs(M[i][i]) * largest[i] +
               3 * roundings_ * factorization[i];
  step.error = magnitude_product(inverse, local);
  for (int i = 0; i < n; ++i) {
    step.error[i] += std::abs(step.state[i]);
    for (int j = 0; j < n; ++j) step.decay[i][j] *= 2;  // (I − X)⁻¹·(I + X) = 2·(I − X)⁻¹ − I
    step.decay[i][i] -= 1;
  }
  return step;
}

DenseStep DenseSystem::hold(StepSize size, const Vector& h, const Vector& h_size, const Vector& input) const {
  const int n = A_.n;
  const auto doublings = exponential_->doublings(size.delta);
  const Matrix& decay = doublings.back().exponential;
  const Matrix& integral = doublings.back().integral;
  DenseStep step{{}, decay, {}};
  Vector largest{};
  for (int i = 0; i < n; ++i) largest[i] = h_size[i];
  for (const auto& part : doublings) {
    step.state = product(part.exponential, h);
    const Vector driven = product(part.integral, input);
    for (int i = 0; i < n; ++i) {
      step.state[i] += driven[i];
      largest[i] = std::max(largest[i], std::abs(step.state[i]));
    }
  }
  const double parts = std::max(1.0, std::abs(size.delta) * norm_);
  const double first_part = std::ldexp(1.0, 1 - static_cast<int>(doublings.size()));
  Vector rate = magnitude_product(A_, largest);
  for (int i = 0; i < n; ++i) rate[i] = std::abs(size.delta) * (rate[i] + std::abs(input[i]));
  const double truncated = *std::ranges::max_element(rate) / 2;
  Vector error{};
  for (int i = 0; i < n; ++i)
    error[i] =
        ((size.relative_error + 2 * roundings_) * rate[i] + truncated + parts * largest[i]) * first_part;
  for (std::size_t k = 0; k + 1 < doublings.size(); ++k) {
    const Vector carried = magnitude_product(doublings[k].exponential, error);
    for (int i = 0; i < n; ++i) error[i] += carried[i];
  }
  const Vector kept = magnitude_product(decay, h);
  const Vector added = magnitude_product(integral, input);
  for (int i = 0; i < n; ++i) error[i] += roundings_ * (kept[i] + added[i]) + std::abs(step.state[i]);
  step.error = error;
  return step;
}

}  // namespace ssmbench
