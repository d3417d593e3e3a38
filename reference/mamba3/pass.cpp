#include "reference/mamba3/pass.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ssmbench {
namespace {

std::int64_t whole_blocks(std::int64_t rows) {
  return (rows + kSsdBlockRows - 1) / kSsdBlockRows * kSsdBlockRows;
}

/// Fills a row with numbers, or with zeros where there are none.
template <class T, class F>
void set(T* row, const double* numbers, std::int64_t count, const F& function) {
  for (std::int64_t i = 0; i < count; ++i)
    row[i] = numbers == nullptr ? T{} : static_cast<T>(function(numbers[i]));
}

double same(double x) {
  return x;
}
double absolute(double x) {
  return std::abs(x);
}
double square_of(double x) {
  return x * x;
}

double largest_of(const float* row, std::int64_t count) {
  return *std::max_element(row, row + count);
}

}  // namespace

Mamba3Spread::Mamba3Spread(std::int64_t count)
    : count_(count),
      matrix_(whole_blocks(count), count),
      diagonal_(1, count),
      weighted_(kSsdTileSteps, count) {}

void Mamba3Spread::clear() {
  matrix_.clear();
  diagonal_.clear();
}

void Mamba3Spread::advance(std::int64_t updates, const SsdStepNumbers& squared_decay,
                           const SsdStepNumbers& weights, const PaddedRows<double>& w, const float* w_size,
                           const PaddedRows<double>& read, const PaddedRows<double>& read_squared) {
  double* diagonal = diagonal_.data();
  for (std::int64_t i = 0; i < updates; ++i) {
    const double* of_w = w.row(i);
    const float* sizes = w_size + i * w.stride();
    const double* of_read = read_squared.row(i);
    double* weighted = weighted_.row(i);
    double of_parts = 0;
    double squares = 0;
#pragma omp simd reduction(+ : of_parts, squares)
    for (std::int64_t n = 0; n < count_; ++n) {
      weighted[n] = weights[i] * of_w[n];
      const double size = sizes[n];
      diagonal[n] = squared_decay[i] * diagonal[n] + weights[i] * size * size;
      of_parts += diagonal[n] * of_read[n];
      squares += diagonal[n] * diagonal[n];
    }
    parts[i] = of_parts;
    squared_diagonals[i] = squares;
  }
  advance_ssd(SsdQuadratic{.size = {.steps = updates,
                                    .rows = whole_blocks(count_),
                                    .row_stride = matrix_.stride(),
                                    .column_stride = matrix_.stride()},
                           .matrix = matrix_.data(),
                           .decay = squared_decay.data(),
                           .v = weighted_.data(),
                           .w = w.data(),
                           .r = read.data(),
                           .sum = wholes.data()});
  for (std::int64_t i = 0; i < updates; ++i) wholes[i] = std::max(wholes[i], 0.0);
}

Mamba3Pass::Mamba3Pass(std::int64_t headdim, std::int64_t dstate, bool reads_headdims,
                       std::function<void(double*)> join_pairs)
    : headdim_(headdim),
      dstate_(dstate),
      reads_headdims_(reads_headdims),
      state_(whole_blocks(headdim), dstate),
      magnitude_(whole_blocks(headdim), dstate),
      error_(whole_blocks(headdim), dstate),
      join_pairs_(std::move(join_pairs)),
      memory_(headdim, dstate),
      underflow_(headdim, dstate),
      lengths_(headdim, dstate),
      over_states_(dstate),
      over_headdims_(reads_headdims ? headdim : 0),
      along_states_(headdim),
      along_headdims_(reads_headdims ? dstate : 0),
      v_(kSsdTileSteps, headdim),
      undecayed_(kSsdTileSteps, headdim),
      w_(kSsdTileSteps, dstate),
      r_(kSsdTileSteps, dstate),
      r_squared_(kSsdTileSteps, dstate),
      q_(kSsdTileSteps, headdim),
      q_squared_(kSsdTileSteps, headdim),
      v_size_(kSsdTileSteps, headdim),
      added_(kSsdTileSteps, headdim),
      late_(kSsdTileSteps, headdim),
      w_size_(kSsdTileSteps + 1, dstate),
      r_size_(kSsdTileSteps, dstate),
      q_size_(kSsdTileSteps, headdim) {}

void Mamba3Pass::clear() {
  state_.clear();
  magnitude_.clear();
  error_.clear();
  memory_.clear();
  underflow_.clear();
  errors_ = {};
  over_states_.clear();
  over_headdims_.clear();
  count_ = 0;
}

std::int64_t Mamba3Pass::add(const Mamba3Update& update) {
  const std::int64_t i = count_++;
  decay_[i] = update.decay;
  more_variance_[i] = update.more_variance;
  decay_float_[i] = static_cast<float>(update.decay);
  decay_and_error_[i] = static_cast<float>(update.decay * update.roundings);
  const bool adds = update.v != nullptr;
  add_errors(update);
  set(v_.row(i), update.v, headdim_, same);
  set(undecayed_.row(i), update.undecayed == nullptr ? update.v : update.undecayed, headdim_, same);
  set(v_size_.row(i), update.v, headdim_, absolute);
  // The product is rounded, and the sum at its magnitude.
  for (std::int64_t p = 0; p < headdim_; ++p)
    added_.row(i)[p] = adds ? static_cast<float>(update.v_error[p] + 2 * std::abs(update.v[p])) : 0;
  set(w_.row(i), adds ? update.w : nullptr, dstate_, same);
  set(w_size_.row(i + 1), adds ? update.w_size : nullptr, dstate_, same);
  set(r_.row(i), update.r, dstate_, same);
  set(r_size_.row(i), update.r_size, dstate_, same);
  set(r_squared_.row(i), update.r_size, dstate_, square_of);
  if (!reads_headdims_) return i;
  set(q_.row(i), update.q, headdim_, same);
  set(q_size_.row(i), update.q, headdim_, absolute);
  set(q_squared_.row(i), update.q, headdim_, square_of);
  return i;
}

/// Of `roundings` a step's decay has 3 that are not alike: the product, the sum, and one of its own.
void Mamba3Pass::add_errors(const Mamba3Update& update) {
  errors_.decay *= update.decay;
  if (update.is_step) ++errors_.steps;
  const double shared = update.is_step ? std::max(update.roundings - update.drift - 3, 0.0) : 0;
  errors_.of_decays += shared;
  errors_.of_order += update.is_step ? update.drift : update.roundings;
  if (update.v == nullptr) return;
  for (std::int64_t p = 0; p < headdim_; ++p)
    if (update.v[p] != 0)
      errors_.of_terms = std::max(errors_.of_terms, update.v_error[p] / std::abs(update.v[p]) + 1);
}

SsdMatrixSize Mamba3Pass::size() const {
  return {.steps = count_,
          .rows = whole_blocks(headdim_),
          .row_stride = v_size_.stride(),
          .column_stride = state_.stride()};
}

void Mamba3Pass::advance() {
  advance_values();
  advance_bounds();
  advance_memory();
  advance_spreads();
  add_underflow();
  count_ = 0;
}

void Mamba3Pass::add_underflow() {
  for (std::int64_t i = 0; i < count_; ++i) {
    underflow_.add(undecayed_.row(i), w_size_.row(i + 1));
    const double over_states = underflow_.lost_over_states(r_size_.row(i));
    for (std::int64_t p = 0; p < headdim_; ++p)
      along_states_.error.row(i)[p] += static_cast<float>(underflow_.row(p) * over_states);
    if (!reads_headdims_) continue;
    const double over_headdims = underflow_.lost_over_headdims(q_.row(i));
    for (std::int64_t n = 0; n < dstate_; ++n)
      along_headdims_.error.row(i)[n] += static_cast<float>(underflow_.column(n) * over_headdims);
  }
}

void Mamba3Pass::advance_memory() {
  for (std::int64_t p = 0; p < headdim_; ++p) {
    set(lengths_.row(p), state_.row(p), dstate_, absolute);
    join_pairs_(lengths_.row(p));
  }
  const bool was_long = memory_.is_long();
  memory_.end_tile(errors_, lengths_, magnitude_, error_);
  errors_ = {};
  if (!was_long) return;
  finish_errors(count_, memory_.largest_of_rows(), r_squared_, dstate_, along_states_);
  if (reads_headdims_)
    finish_errors(count_, memory_.largest_of_columns(), q_squared_, headdim_, along_headdims_);
}

void Mamba3Pass::advance_values() {
  advance_ssd(SsdValues{.size = size(),
                        .matrix = state_.data(),
                        .decay = decay_.data(),
                        .v = v_.data(),
                        .w = w_.data(),
                        .r = r_.data(),
                        .r_squared = r_squared_.data(),
                        .q = reads_headdims_ ? q_.data() : nullptr,
                        .q_squared = q_squared_.data(),
                        .of_rows = {along_states_.value.data(), along_states_.squares.data()},
                        .of_columns = {along_headdims_.value.data(), along_headdims_.squares.data()},
                        .fourths = fourths_.data()});
}

void Mamba3Pass::advance_bounds() {
  advance_ssd(SsdBounds{.size = size(),
                        .magnitude = magnitude_.data(),
                        .error = error_.data(),
                        .decay = decay_float_.data(),
                        .decay_and_error = decay_and_error_.data(),
                        .v = v_size_.data(),
                        .added = added_.data(),
                        .late = late_.data(),
                        .w = w_size_.data(),
                        .r = r_size_.data(),
                        .q = reads_headdims_ ? q_size_.data() : nullptr,
                        .of_rows = {along_states_.magnitude.data(), along_states_.error.data()},
                        .of_columns = {along_headdims_.magnitude.data(), along_headdims_.error.data()},
                        .squares = memory_.is_long()});
}

void Mamba3Pass::advance_spreads() {
  SsdStepNumbers squared_decay{};
  SsdStepNumbers of_v{};
  SsdStepNumbers of_w{};
  for (std::int64_t i = 0; i < count_; ++i) {
    squared_decay[i] = decay_[i] * decay_[i];
    of_v[i] = more_variance_[i] * square_of(largest_of(v_size_.row(i), headdim_));
    of_w[i] = more_variance_[i] * square_of(largest_of(w_size_.row(i + 1), dstate_));
  }
  over_states_.advance(count_, squared_decay, of_v, w_, w_size_.row(1), r_, r_squared_);
  if (reads_headdims_)
    over_headdims_.advance(count_, squared_decay, of_w, v_, v_size_.data(), q_, q_squared_);
}

}  // namespace ssmbench
