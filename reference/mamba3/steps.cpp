#include "reference/mamba3/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/errors.h"
#include "reference/common/activations.h"
#include "reference/mamba3/values.h"
#include "reference/ssd_chunk_scan/steps.h"

namespace ssmbench {
namespace {

/// As in reference/ssd_chunk_scan/steps.cpp: roundings of a cumulative sum over the steps of a chunk.
constexpr double kSumRoundings = 4;

/// 1 − λ of an implementation that subtracts.
Rounded<double> complement_of(double trap, const Rounded<double>& lambda) {
  Rounded<double> closed = logistic(-trap, std::exp(-std::abs(trap)), 0);
  closed.error = std::max(closed.error, lambda.error + closed.value);
  return closed;
}

}  // namespace

std::vector<Mamba3Sequence> mamba3_sequences(const Mamba3& scan, const TensorSet& inputs) {
  std::vector<Mamba3Sequence> all;
  if (!scan.has_cu_seqlens) {
    for (std::int64_t b = 0; b < scan.batch; ++b) all.push_back({b, b, 0, scan.seqlen});
    return all;
  }
  const auto* borders = static_cast<const std::int32_t*>(inputs.at("cu_seqlens").data);
  if (borders[scan.sequences] != scan.seqlen)
    throw UsageError(
        fmt::format("cu_seqlens ends at {}, the sequences at {}", borders[scan.sequences], scan.seqlen));
  for (std::int64_t m = 0; m < scan.sequences; ++m) all.push_back({m, 0, borders[m], borders[m + 1]});
  return all;
}

std::vector<Mamba3Step> mamba3_steps(const Mamba3& scan, const TensorSet& inputs,
                                     const Mamba3Sequence& sequence, std::int64_t head) {
  const TensorView& trap = inputs.at("Trap");
  const std::int64_t row = (sequence.batch * scan.nheads + head) * scan.seqlen;
  std::vector<Mamba3Step> steps(sequence.end - sequence.begin);
  std::vector<double> exponents(steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::int64_t at = row + sequence.begin + static_cast<std::int64_t>(i);
    const double x = load_as_double(trap.data, at, trap.dtype);
    const double exponent = float_of(inputs, "ADT", at);
    const auto dt = exactly(float_of(inputs, "DT", at));
    steps[i].dt = dt;
    steps[i].open = logistic(x, std::exp(-std::abs(x)), 0);
    steps[i].closed = complement_of(x, steps[i].open);
    exponents[i] = std::abs(exponent);
    steps[i].decay = std::exp(exponent);
    steps[i].decay_error = (1 + kSumRoundings) * exponents[i] + kExpError;
    steps[i].own = steps[i].open * dt;
    steps[i].previous = steps[i].closed * dt;
  }
  double sum = 0;  // of the exponents of the longest chunk that ends with the step
  for (std::size_t i = 0; i < steps.size(); ++i) {
    sum += exponents[i];
    if (i >= static_cast<std::size_t>(kLongestChunk)) sum -= exponents[i - kLongestChunk];
    steps[i].cumulative_error = kSumRoundings * std::max(sum, 0.0);
  }
  return steps;
}

Mamba3Angles::Mamba3Angles(std::int64_t count, const float* start)
    : start_(count), angle_(count), cosine_(count), sine_(count), way_(count), squared_errors_(count) {
  if (start != nullptr) std::copy_n(start, count, start_.begin());
  angle_ = start_;
}

void Mamba3Angles::advance(double step, const double* rates) {
  ++steps_;
  drift_ = 0;
  size_ = 0;
  for (std::size_t i = 0; i < angle_.size(); ++i) {
    const double increment = step * std::numbers::pi * std::tanh(rates[i]);
    const double error = kIncrementError * std::abs(increment);
    angle_[i] += increment;
    cosine_[i] = std::cos(angle_[i]);
    sine_[i] = std::sin(angle_[i]);
    way_[i] += std::abs(increment);
    squared_errors_[i] += error * error;
    const double size = size_of(static_cast<std::int64_t>(i));
    drift_ = std::max(drift_, error + size);
    size_ = std::max(size_, size);
  }
}

double Mamba3Angles::size_of(std::int64_t i) const {
  return std::min(kTurn, std::abs(start_[i]) + way_[i]);
}

double Mamba3Angles::error(std::int64_t i) const {
  const double shared = 2 * std::abs(angle_[i] - start_[i]);
  const double increments =
      std::min(kIncrementError * way_[i], kSpread * std::sqrt(squared_errors_[i]) + shared);
  const double sums = kSpread * std::sqrt(static_cast<double>(steps_)) * size_of(i);
  return increments + sums + 2 * std::abs(start_[i]);
}

}  // namespace ssmbench
