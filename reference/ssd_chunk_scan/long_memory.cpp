#include "reference/ssd_chunk_scan/long_memory.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/ssd_chunk_scan/steps.h"

namespace ssmbench {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

SsdLongMemory::SsdLongMemory(std::int64_t rows, std::int64_t columns)
    : rows_(rows),
      columns_(columns),
      size_before_(rows, columns),
      magnitude_before_(rows, columns),
      run_(rows, columns),
      own_(rows, columns),
      coherent_(rows, columns),
      coherent_before_(rows, columns),
      deviation_(rows, columns),
      largest_(rows, columns),
      order_(rows, columns),
      bound_(rows, columns),
      largest_of_rows_(rows, kInfinity),
      largest_of_columns_(columns, kInfinity) {}

void SsdLongMemory::clear() {
  for (auto* numbers : {&size_before_, &magnitude_before_, &run_, &own_, &coherent_, &coherent_before_,
                        &deviation_, &largest_, &order_})
    numbers->clear();
  steps_ = 0;
  decay_ = 1;
  is_long_ = false;
  std::ranges::fill(largest_of_rows_, kInfinity);
  std::ranges::fill(largest_of_columns_, kInfinity);
}

void SsdLongMemory::start_from(const PaddedRows<float>& magnitude, const PaddedRows<float>& error) {
  clear();
  for (std::int64_t p = 0; p < rows_; ++p) {
    for (auto* numbers : {&size_before_, &magnitude_before_, &run_})
      std::copy_n(magnitude.row(p), columns_, numbers->row(p));
    for (auto* numbers : {&coherent_, &coherent_before_})
      std::copy_n(error.row(p), columns_, numbers->row(p));
  }
}

void SsdLongMemory::end_tile(const SsdTileErrors& tile, const PaddedRows<double>& sizes,
                             PaddedRows<float>& magnitude, PaddedRows<float>& error) {
  add_tile(tile, sizes, magnitude);
  if (is_long_) find_largest(tile.decay, sizes, error);
  steps_ += tile.steps;
  decay_ *= tile.decay;
  if (steps_ >= kLongestChunk) end_chunk(magnitude, error);
  for (std::int64_t p = 0; p < rows_; ++p) {
    std::copy_n(magnitude.row(p), columns_, magnitude_before_.row(p));
    std::transform(sizes.row(p), sizes.row(p) + columns_, size_before_.row(p),
                   [](double value) { return static_cast<float>(std::abs(value)); });
  }
}

void SsdLongMemory::add_tile(const SsdTileErrors& tile, const PaddedRows<double>& sizes,
                             const PaddedRows<float>& magnitude) {
  const auto decay = static_cast<float>(tile.decay);
  const auto of_decays = static_cast<float>(tile.of_decays);
  const auto of_terms = static_cast<float>(tile.of_terms);
  const auto of_order = static_cast<float>(tile.of_order);
  for (std::int64_t p = 0; p < rows_; ++p) {
    const double* value = sizes.row(p);
    const float* total = magnitude.row(p);
    const float* size_before = size_before_.row(p);
    const float* total_before = magnitude_before_.row(p);
    float* run = run_.row(p);
    float* own = own_.row(p);
    float* coherent = coherent_.row(p);
    float* order = order_.row(p);
#pragma omp simd
    for (std::int64_t n = 0; n < columns_; ++n) {
      const auto size = static_cast<float>(std::abs(value[n]));
      const float kept = decay * size_before[n];
      // f32 leaves 4 roundings of the magnitudes in their difference.
      const float added = std::max(total[n] - decay * total_before[n], 0.0F) + 0x1p-22F * total[n];
      const float within = (size < kept ? size : kept) + added;
      own[n] = decay * own[n] + added;
      run[n] = std::max(decay * run[n], within);
      order[n] = decay * order[n] + of_order * within;
      coherent[n] = decay * coherent[n] + of_decays * within + of_terms * added;
    }
  }
}

/// Errors grow in a tile but for its decay.
void SsdLongMemory::find_largest(double decay, const PaddedRows<double>& sizes,
                                 const PaddedRows<float>& error) {
  const auto growth = decay > 0.5 ? static_cast<float>(1 / decay) : kInfinity;
  double errors = 0;
  double total = 0;
  std::ranges::fill(largest_of_columns_, 0.0F);
  for (std::int64_t p = 0; p < rows_; ++p) {
    const float* of_row = error.row(p);
    float largest = 0;
    for (std::int64_t n = 0; n < columns_; ++n) {
      largest = std::max(largest, of_row[n]);
      largest_of_columns_[n] = std::max(largest_of_columns_[n], of_row[n]);
      errors += of_row[n];
      total += std::abs(sizes.row(p)[n]);
    }
    largest_of_rows_[p] = growth * largest;
  }
  for (float& largest : largest_of_columns_) largest *= growth;
  relative_error_ = errors / total;
}

void SsdLongMemory::end_chunk(PaddedRows<float>& magnitude, PaddedRows<float>& error) {
  const auto decay = static_cast<float>(decay_);
  double errors = 0;
  double bounds = 0;
  for (std::int64_t p = 0; p < rows_; ++p)
    for (std::int64_t n = 0; n < columns_; ++n) {
      const float grown = std::max(coherent_.row(p)[n] - decay * coherent_before_.row(p)[n], 0.0F);
      float& largest = largest_.row(p)[n];
      float& deviation = deviation_.row(p)[n];
      largest = std::max(3 * grown + order_.row(p)[n], decay * largest);
      deviation = std::hypot(decay * deviation, largest);
      coherent_before_.row(p)[n] = coherent_.row(p)[n];
      bound_.row(p)[n] = 2 * coherent_.row(p)[n] + 4.5F * deviation;
      errors += error.row(p)[n];
      bounds += std::min(error.row(p)[n], bound_.row(p)[n]);
    }
  is_long_ = is_long_ || 2 * bounds < errors;
  if (is_long_) take_over(magnitude, error);
  own_.clear();
  order_.clear();
  steps_ = 0;
  decay_ = 1;
}

/// What may have overflowed stays without bound.
void SsdLongMemory::take_over(PaddedRows<float>& magnitude, PaddedRows<float>& error) const {
  for (std::int64_t p = 0; p < rows_; ++p)
    for (std::int64_t n = 0; n < columns_; ++n) {
      float& running = error.row(p)[n];
      float& total = magnitude.row(p)[n];
      if (!std::isfinite(running)) continue;
      running = std::min(running, bound_.row(p)[n]);
      total = std::min(total, 3 * run_.row(p)[n] + own_.row(p)[n]);
    }
}

}  // namespace ssmbench
