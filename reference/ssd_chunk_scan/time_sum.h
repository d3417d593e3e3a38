#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "reference/common/rounded.h"
#include "reference/ssd_chunk_scan/bounds.h"

namespace ssmbench {

/// A sum over time steps, whose errors are alike for as long as the state remembers.
struct TimeSum {
  double value = 0, magnitude = 0, error = 0, squared_errors = 0, operand_error = 0, operand_squares = 0;

  /// `alike`: over how many steps.
  void add(double term, double term_error, double term_operand_error, double alike) {
    value += term;
    magnitude += std::abs(term);
    error += term_error;
    squared_errors += alike * term_error * term_error;
    operand_error += term_operand_error;
    operand_squares += alike * term_operand_error * term_operand_error;
  }
  void add(const TimeSum& other) {
    value += other.value;
    magnitude += other.magnitude;
    error += other.error;
    squared_errors += other.squared_errors;
    operand_error += other.operand_error;
    operand_squares += other.operand_squares;
  }
  /// Bound on the error in roundoffs, that of adding up `terms` included.
  double bound(std::int64_t terms) const {
    const double spread = kSpread * std::sqrt(squared_errors) + kSharedError * std::abs(value);
    return std::min(error, spread) + (1 + std::sqrt(static_cast<double>(terms))) * magnitude;
  }
  double operand_bound() const {
    return std::min(operand_error, std::sqrt(operand_squares) + kSharedRoundings * std::abs(value));
  }
  void store_to(ReferenceOutput& to, std::int64_t at, std::int64_t terms) const {
    store(to, at, value, bound(terms), operand_bound());
  }
};

}  // namespace ssmbench
