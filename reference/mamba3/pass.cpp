#include "reference/mamba3/pass.h"

#include <algorithm>
#include <cmath>

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
double size_of(double x) {
  return std::abs(x);
}

}  // namespace

Mamba3Pass::Mamba3Pass(std::int64_t headdim, std::int64_t dstate)
    : headdim_(headdim),
      dstate_(dstate),
      state_(whole_blocks(headdim), dstate),
      magnitude_(whole_blocks(headdim), dstate),
      error_(whole_blocks(headdim), dstate),
      spread_(whole_blocks(dstate), dstate),
      diagonal_(1, dstate),
      v_(kSsdTileSteps, headdim),
      w_(kSsdTileSteps, dstate),
      r_(kSsdTileSteps, dstate),
      r_squared_(kSsdTileSteps, dstate),
      weighted_w_(kSsdTileSteps, dstate),
      v_size_(kSsdTileSteps, headdim),
      added_(kSsdTileSteps, headdim),
      late_(kSsdTileSteps, headdim),
      w_size_(kSsdTileSteps + 1, dstate),
      r_size_(kSsdTileSteps, dstate),
      reads_(headdim) {}

void Mamba3Pass::clear() {
  state_.clear();
  magnitude_.clear();
  error_.clear();
  spread_.clear();
  diagonal_.clear();
  count_ = 0;
}

std::int64_t Mamba3Pass::add(const Mamba3Update& update) {
  const std::int64_t i = count_++;
  decay_[i] = update.decay;
  decay_float_[i] = static_cast<float>(update.decay);
  decay_and_error_[i] = static_cast<float>(update.decay * update.roundings);
  const bool adds = update.v != nullptr;
  set(v_.row(i), update.v, headdim_, same);
  set(v_size_.row(i), update.v, headdim_, size_of);
  // The product is rounded, and the sum at its magnitude.
  for (std::int64_t p = 0; p < headdim_; ++p)
    added_.row(i)[p] = adds ? static_cast<float>(update.v_error[p] + 2 * std::abs(update.v[p])) : 0;
  set(w_.row(i), adds ? update.w : nullptr, dstate_, same);
  set(w_size_.row(i + 1), adds ? update.w_size : nullptr, dstate_, same);
  set(r_.row(i), update.r, dstate_, same);
  set(r_size_.row(i), update.r_size, dstate_, same);
  set(r_squared_.row(i), update.r_size, dstate_, [](double x) { return x * x; });
  return i;
}

SsdMatrixSize Mamba3Pass::size() const {
  return {.steps = count_,
          .rows = whole_blocks(headdim_),
          .row_stride = v_size_.stride(),
          .column_stride = state_.stride()};
}

void Mamba3Pass::advance() {
  advance_ssd(SsdValues{.size = size(),
                        .matrix = state_.data(),
                        .decay = decay_.data(),
                        .v = v_.data(),
                        .w = w_.data(),
                        .r = r_.data(),
                        .r_squared = r_squared_.data(),
                        .q = nullptr,
                        .q_squared = nullptr,
                        .of_rows = {reads_.value.data(), reads_.squares.data()},
                        .of_columns = {},
                        .fourths = nullptr});
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
                        .q = nullptr,
                        .of_rows = {reads_.magnitude.data(), reads_.error.data()},
                        .of_columns = {}});
  advance_spread();
  count_ = 0;
}

void Mamba3Pass::advance_spread() {
  SsdStepNumbers squared_decay{};
  double* diagonal = diagonal_.row(0);
  for (std::int64_t i = 0; i < count_; ++i) {
    squared_decay[i] = decay_[i] * decay_[i];
    const float largest = *std::max_element(v_size_.row(i), v_size_.row(i) + headdim_);
    const double weight = static_cast<double>(largest) * largest;
    const double* w = w_.row(i);
    const float* w_size = w_size_.row(i + 1);
    const double* r_squared = r_squared_.row(i);
    double* weighted = weighted_w_.row(i);
    double sum = 0;
    for (std::int64_t n = 0; n < dstate_; ++n) {
      weighted[n] = weight * w[n];
      diagonal[n] = squared_decay[i] * diagonal[n] + weight * w_size[n] * w_size[n];
      sum += diagonal[n] * r_squared[n];
    }
    parts_[i] = sum;
  }
  advance_ssd(SsdQuadratic{.size = {.steps = count_,
                                    .rows = whole_blocks(dstate_),
                                    .row_stride = spread_.stride(),
                                    .column_stride = spread_.stride()},
                           .matrix = spread_.data(),
                           .decay = squared_decay.data(),
                           .v = weighted_w_.data(),
                           .w = w_.data(),
                           .r = r_.data(),
                           .sum = wholes_.data()});
  for (std::int64_t i = 0; i < count_; ++i) wholes_[i] = std::max(wholes_[i], 0.0);
}

Mamba3Read Mamba3Pass::read(std::int64_t update, std::int64_t p) const {
  return {reads_.value.row(update)[p], reads_.magnitude.row(update)[p], reads_.error.row(update)[p],
          reads_.squares.row(update)[p]};
}

}  // namespace ssmbench
