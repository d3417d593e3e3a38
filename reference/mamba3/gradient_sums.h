#pragma once

// What Mamba-3's gradients are summed in.

#include <cmath>
#include <vector>

#include "ops/mamba3/mamba3.h"
#include "reference/mamba3/values.h"
#include "reference/reference.h"
#include "reference/ssd_chunk_scan/time_sum.h"

namespace ssmbench::mamba3_gradients {

/// What an implementation may be off by in roundoffs of f32, rounded angles included.
inline double error_of(const Mamba3Value& value, bool angles_in_bf16) {
  const double of_angles = kOperandSpread * kAngleInBf16 * std::sqrt(value.angle_variance);
  return value.error + (angles_in_bf16 ? of_angles : 0);
}

/// The product of two results.
inline Mamba3Value product(const Mamba3Value& a, const Mamba3Value& b) {
  const double size = std::abs(a.value * b.value);
  const double a2 = a.value * a.value;
  const double b2 = b.value * b.value;
  return {a.value * b.value, a.magnitude * b.magnitude,
          std::abs(a.value) * b.error + a.error * std::abs(b.value) + size, a2 * b.variance + a.variance * b2,
          a2 * b.angle_variance + a.angle_variance * b2};
}

/// A sum whose terms have errors of their own.
struct Dot {
  Mamba3Value sum;
  double squared_errors = 0;

  void add(const Mamba3Value& term) {
    sum.value += term.value;
    sum.magnitude += std::abs(term.value);
    sum.error += term.error;
    squared_errors += term.error * term.error;
    sum.variance += term.variance;
    sum.angle_variance += term.angle_variance;
  }
  /// `spread`: λ of the terms' errors.
  Mamba3Value over(std::int64_t terms, double spread = kSpread) const {
    Mamba3Value all = sum;
    all.error = std::min(all.error, spread * std::sqrt(squared_errors) + kSharedError * std::abs(all.value)) +
                (2 + std::sqrt(static_cast<double>(terms))) * all.magnitude;
    return all;
  }
};

/// What is summed over time for one head of one sequence.
struct HeadSums {
  std::vector<TimeSum> dQ_bias, dK_bias;   ///< [rank][state]
  std::vector<TimeSum> ups, gates, downs;  ///< dMIMO_V, dMIMO_Z, dMIMO_Out, [rank][head dim]
  std::vector<TimeSum> norm;               ///< doutproj_norm_weight, [head dim]
  TimeSum dD;

  explicit HeadSums(const Mamba3& scan)
      : dQ_bias(scan.rank * scan.dstate),
        dK_bias(dQ_bias.size()),
        ups(scan.rank * scan.headdim),
        gates(ups.size()),
        downs(ups.size()),
        norm(scan.headdim) {}
};

/// Stores the sums of all heads, [sequence][head], added up over sequences in order.
void store_head_sums(const Mamba3& scan, const std::vector<HeadSums>& heads, ReferenceOutputs& outputs);

}  // namespace ssmbench::mamba3_gradients
