#include "reference/ssd_chunk_scan/pass.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "reference/ssd_chunk_scan/steps.h"

namespace ssmbench {
namespace {

std::int64_t whole_blocks(std::int64_t rows) {
  return (rows + kSsdBlockRows - 1) / kSsdBlockRows * kSsdBlockRows;
}

/// With `least` in place of values that are less.
void squares_of(const PaddedRows<double>& values, std::int64_t steps, PaddedRows<double>& into,
                double least = 0) {
  const double* from = values.data();
  double* to = into.data();
  const double least_square = least * least;
  for (std::int64_t i = 0; i < steps * values.stride(); ++i)
    to[i] = std::max(from[i] * from[i], least_square);
}

void sizes_of(const PaddedRows<double>& values, std::int64_t steps, float* into) {
  const double* from = values.data();
  for (std::int64_t i = 0; i < steps * values.stride(); ++i) into[i] = static_cast<float>(std::abs(from[i]));
}

SsdStepNumbers largest_of(const PaddedRows<double>& values, std::int64_t steps, double least = 0) {
  SsdStepNumbers largest{};
  std::ranges::fill(largest, least);
  for (std::int64_t t = 0; t < steps; ++t)
    for (std::int64_t i = 0; i < values.stride(); ++i)
      largest[t] = std::max(largest[t], std::abs(values.row(t)[i]));
  return largest;
}

}  // namespace

void finish_errors(std::int64_t steps, const std::vector<float>& largest, const PaddedRows<double>& squared,
                   std::int64_t count, SsdContraction& sums) {
  constexpr float kBelowSquares = 0x1p-60F;  // where squares underflow
  for (std::int64_t t = 0; t < steps; ++t) {
    const double* of_vector = squared.row(t);
    const auto norm = static_cast<float>(std::sqrt(std::accumulate(of_vector, of_vector + count, 0.0)));
    float* error = sums.error.row(t);
    for (std::size_t i = 0; i < largest.size(); ++i)
      error[i] = std::min(std::sqrt(error[i]) + kBelowSquares, largest[i] * norm);
  }
}

void SsdUnderflow::clear() {
  std::ranges::fill(rows_, 1.0);
  std::ranges::fill(columns_, 1.0);
}

void SsdUnderflow::start_from(const float* state) {
  clear();
  for (double& row : rows_)
    for (std::size_t n = 0; n < columns_.size(); ++n) row = std::max(row, 1.0 + std::abs(*state++));
}

void SsdFloor::clear() {
  for (auto* part : {&old_, &before_, &now_}) std::ranges::fill(*part, 0.0);
  least_before_ = least_now_ = 0;
  decay_ = 1;
  steps_ = 0;
}

void SsdFloor::advance(const SsdTile& tile, std::int64_t t) {
  if (steps_ == kLongestChunk) {
    for (std::size_t n = 0; n < old_.size(); ++n)
      old_[n] = decay_ * decay_ * old_[n] + least_square() * before_[n];
    before_ = now_;
    std::ranges::fill(now_, 0.0);
    least_before_ = std::exchange(least_now_, 0);
    decay_ = 1;
    steps_ = 0;
  }
  ++steps_;
  decay_ *= tile.decay[t];
  least_now_ = std::max(least_now_, tile.least_product[t]);
  const double* w = tile.w.row(t);
  for (double& sum : now_) sum += std::pow(*w++, 2);
}

SsdSpread::SsdSpread(std::int64_t count)
    : count_(count), matrix_(whole_blocks(count), count), diagonal_(1, count), v_(kSsdTileSteps, count) {}

void SsdSpread::clear() {
  matrix_.clear();
  diagonal_.clear();
}

void SsdSpread::advance(std::int64_t steps, const SsdStepNumbers& decay, const SsdStepNumbers& sizes,
                        const PaddedRows<double>& w, const PaddedRows<double>& r, double least) {
  constexpr double kWhole = SsdPass::kTermRoundings;
  constexpr double kParts = SsdPass::kPartRoundings;
  SsdStepNumbers squared_decay{};
  SsdStepNumbers parts{};
  double* diagonal = diagonal_.data();
  for (std::int64_t t = 0; t < steps; ++t) {
    squared_decay[t] = decay[t] * decay[t];
    const double weight = sizes[t] * sizes[t];
    const double least_square = weight * least * least;
    double of_parts = 0;
    double squares = 0;
    const double* of_w = w.row(t);
    const double* of_r = r.row(t);
    double* v = v_.row(t);
#pragma omp simd reduction(+ : of_parts, squares)
    for (std::int64_t n = 0; n < count_; ++n) {
      v[n] = weight * of_w[n];
      diagonal[n] = squared_decay[t] * diagonal[n] + std::max(v[n] * of_w[n], least_square);
      of_parts += diagonal[n] * of_r[n] * of_r[n];
      squares += diagonal[n] * diagonal[n];
    }
    parts[t] = of_parts;
    squared_diagonals[t] = squares;
  }
  SsdStepNumbers wholes{};
  advance_ssd(SsdQuadratic{.size = {.steps = steps,
                                    .rows = whole_blocks(count_),
                                    .row_stride = matrix_.stride(),
                                    .column_stride = matrix_.stride()},
                           .matrix = matrix_.data(),
                           .decay = squared_decay.data(),
                           .v = v_.data(),
                           .w = w.data(),
                           .r = r.data(),
                           .sum = wholes.data()});
  for (std::int64_t t = 0; t < steps; ++t)
    variance[t] = std::max(kWhole * wholes[t] + kParts * parts[t], 0.0);
}

SsdPass::SsdPass(std::int64_t headdim, std::int64_t dstate, bool reads_headdims)
    : headdim_(headdim),
      dstate_(dstate),
      reads_headdims_(reads_headdims),
      state_(whole_blocks(headdim), dstate),
      magnitude_(whole_blocks(headdim), dstate),
      error_(whole_blocks(headdim), dstate),
      memory_(headdim, dstate),
      underflow_(headdim, dstate),
      last_v_(headdim),
      over_states_(dstate),
      over_headdims_(reads_headdims ? headdim : 0),
      floor_(dstate),
      of_states_(headdim),
      of_headdims_(reads_headdims ? dstate : 0),
      r_squared_(kSsdTileSteps, dstate),
      q_squared_(kSsdTileSteps, headdim),
      v_size_(kSsdTileSteps, headdim),
      added_(kSsdTileSteps, headdim),
      late_(kSsdTileSteps, headdim),
      q_size_(kSsdTileSteps, headdim),
      r_size_(kSsdTileSteps, dstate),
      w_size_(kSsdTileSteps + 1, dstate) {}

void SsdPass::clear() {
  state_.clear();
  magnitude_.clear();
  error_.clear();
  memory_.clear();
  underflow_.clear();
  std::ranges::fill(last_v_, 0.0);
  w_size_.clear();
  over_states_.clear();
  over_headdims_.clear();
  floor_.clear();
}

void SsdPass::start_from(const float* state) {
  clear();
  for (std::int64_t p = 0; p < headdim_; ++p)
    for (std::int64_t n = 0; n < dstate_; ++n) {
      const float value = state[p * dstate_ + n];
      state_.row(p)[n] = value;
      magnitude_.row(p)[n] = std::abs(value);
    }
  memory_.start_from(magnitude_, error_);
  underflow_.start_from(state);
}

void SsdPass::advance(const SsdTile& tile) {
  advance_values(tile);
  advance_bounds(tile);
  advance_memory(tile);
  advance_spreads(tile);
  if (tile.least_operand > 0) add_floor(tile);
  add_underflow(tile);
}

void SsdPass::add_underflow(const SsdTile& tile) {
  for (std::int64_t t = 0; t < tile.steps; ++t) {
    underflow_.add(tile.v.row(t), tile.w.row(t));
    lost_over_states_[t] = underflow_.lost_over_states(tile.r.row(t));
    for (std::int64_t p = 0; p < headdim_; ++p) of_states_.error.row(t)[p] += static_cast<float>(lost(t, p));
    if (!reads_headdims_) continue;
    const double over_headdims = underflow_.lost_over_headdims(tile.q.row(t));
    for (std::int64_t n = 0; n < dstate_; ++n)
      of_headdims_.error.row(t)[n] += static_cast<float>(underflow_.column(n) * over_headdims);
  }
}

/// Roundings of different states, and of different head dims, are taken as independent. Over head dims the products
/// within the chunk are operands of their own.
void SsdPass::add_floor(const SsdTile& tile) {
  for (std::int64_t t = 0; t < tile.steps; ++t) {
    floor_.advance(tile, t);
    double over_states = 0;
    double largest = 0;
    for (std::int64_t n = 0; n < dstate_; ++n) {
      const double variance = kTermRoundings * floor_.variance(n);
      over_states += r_squared_.row(t)[n] * variance;
      largest = std::max(largest, variance);
    }
    of_states_.spread[t] += over_states;
    if (!reads_headdims_) continue;
    const double* q_squared = q_squared_.row(t);
    of_headdims_.spread[t] += largest * (1 + std::accumulate(q_squared, q_squared + headdim_, 0.0));
  }
}

void SsdPass::advance_memory(const SsdTile& tile) {
  SsdTileErrors errors{.steps = tile.steps};
  for (std::int64_t t = 0; t < tile.steps; ++t) {
    errors.decay *= tile.decay[t];
    errors.of_decays += std::max(tile.decay_error[t] - 1, 0.0);
    double of_terms = 0;
    for (std::int64_t p = 0; p < headdim_; ++p)
      if (tile.v.row(t)[p] != 0)
        of_terms = std::max(of_terms, tile.v_error.row(t)[p] / std::abs(tile.v.row(t)[p]));
    errors.of_terms = std::max(errors.of_terms, of_terms + tile.cumulative_error[t]);
  }
  const bool was_long = memory_.is_long();
  memory_.end_tile(errors, state_, magnitude_, error_);
  if (!was_long) return;
  finish_errors(tile.steps, memory_.largest_of_rows(), r_squared_, dstate_, of_states_);
  if (reads_headdims_)
    finish_errors(tile.steps, memory_.largest_of_columns(), q_squared_, headdim_, of_headdims_);
}

SsdMatrixSize SsdPass::size_of(std::int64_t steps) const {
  return {.steps = steps,
          .rows = whole_blocks(headdim_),
          .row_stride = v_size_.stride(),
          .column_stride = state_.stride()};
}

void SsdPass::advance_values(const SsdTile& tile) {
  squares_of(tile.r, tile.steps, r_squared_);
  if (reads_headdims_) squares_of(tile.q, tile.steps, q_squared_, tile.least_operand);
  advance_ssd(SsdValues{.size = size_of(tile.steps),
                        .matrix = state_.data(),
                        .decay = tile.decay.data(),
                        .v = tile.v.data(),
                        .w = tile.w.data(),
                        .r = tile.r.data(),
                        .r_squared = r_squared_.data(),
                        .q = reads_headdims_ ? tile.q.data() : nullptr,
                        .q_squared = q_squared_.data(),
                        .of_rows = {of_states_.value.data(), of_states_.squares.data()},
                        .of_columns = {of_headdims_.value.data(), of_headdims_.squares.data()},
                        .fourths = fourths_.data()});
}

void SsdPass::advance_bounds(const SsdTile& tile) {
  std::array<float, kSsdTileSteps> decay{};
  std::array<float, kSsdTileSteps> decay_and_error{};
  for (std::int64_t t = 0; t < tile.steps; ++t) {
    decay[t] = static_cast<float>(tile.decay[t]);
    // 2·M of M = decay·(M of the step before) + v ⊗ w goes to its two parts.
    decay_and_error[t] = static_cast<float>(tile.decay[t] * (tile.decay_error[t] + 2));
    const double late = tile.decay[t] * tile.cumulative_error[t];
    for (std::int64_t p = 0; p < headdim_; ++p) {
      const double v = std::abs(tile.v.row(t)[p]);
      added_.row(t)[p] = static_cast<float>(tile.v_error.row(t)[p] + 2 * v);
      late_.row(t)[p] = static_cast<float>(late * last_v_[p]);
      last_v_[p] = v;
    }
  }
  sizes_of(tile.v, tile.steps, v_size_.data());
  sizes_of(tile.w, tile.steps, w_size_.row(1));
  sizes_of(tile.r, tile.steps, r_size_.data());
  if (reads_headdims_) sizes_of(tile.q, tile.steps, q_size_.data());
  advance_ssd(SsdBounds{.size = size_of(tile.steps),
                        .magnitude = magnitude_.data(),
                        .error = error_.data(),
                        .decay = decay.data(),
                        .decay_and_error = decay_and_error.data(),
                        .v = v_size_.data(),
                        .added = added_.data(),
                        .late = late_.data(),
                        .w = w_size_.data(),
                        .r = r_size_.data(),
                        .q = reads_headdims_ ? q_size_.data() : nullptr,
                        .of_rows = {of_states_.magnitude.data(), of_states_.error.data()},
                        .of_columns = {of_headdims_.magnitude.data(), of_headdims_.error.data()},
                        .squares = memory_.is_long()});
  std::copy_n(w_size_.row(tile.steps), w_size_.stride(), w_size_.row(0));
}

void SsdPass::advance_spreads(const SsdTile& tile) {
  over_states_.advance(tile.steps, tile.decay, largest_of(tile.v, tile.steps, tile.least_operand), tile.w,
                       tile.r, 0);
  of_states_.spread = over_states_.variance;
  if (!reads_headdims_) return;
  over_headdims_.advance(tile.steps, tile.decay, largest_of(tile.w, tile.steps), tile.v, tile.q,
                         tile.least_operand);
  of_headdims_.spread = over_headdims_.variance;
}

void SsdPass::decay(double decay, double decay_error, double cumulative_error) {
  const PaddedRows<double> of_headdims(1, headdim_);
  const PaddedRows<double> of_states(1, dstate_);
  SsdTile nothing{
      .steps = 1, .v = of_headdims, .v_error = of_headdims, .w = of_states, .r = of_states, .q = of_headdims};
  nothing.decay[0] = decay;
  nothing.decay_error[0] = decay_error;
  nothing.cumulative_error[0] = cumulative_error;
  advance(nothing);
}

}  // namespace ssmbench
