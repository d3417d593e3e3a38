// Plain loops that the compiler puts on SIMD lanes, compiled for every instruction set that Highway knows
// and chosen at run time.

#include "reference/ssd_pass.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reference/ssd_pass.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace ssmbench::HWY_NAMESPACE {

// The loops over f64 and f32 are apart, since vectors of both in one loop would be half empty.

/// One row p of SsdPass::advance; w_size = |w|, last_w that of the step before.
void advance_row(const SsdUpdate& update, std::int64_t p, double last_v, const float* w_size,
                 const float* last_w, std::int64_t count, SsdStateRow row) {
  const double decay = update.decay;
  const double v = update.v[p];
#pragma omp simd
  for (std::int64_t n = 0; n < count; ++n) row.state[n] = decay * row.state[n] + v * update.w[n];

  const auto kept_share = static_cast<float>(decay);
  const auto kept_error = static_cast<float>(update.decay_error);
  const auto last = static_cast<float>(decay * update.cumulative_error * last_v);
  const auto v_size = static_cast<float>(std::abs(v));
  const auto added_error = static_cast<float>(update.v_error[p]);
#pragma omp simd
  for (std::int64_t n = 0; n < count; ++n) {
    const float kept = kept_share * row.magnitude[n];
    const float magnitude = kept + v_size * w_size[n];
    row.error[n] = kept_share * row.error[n] + kept_error * kept + last * last_w[n] +
                   added_error * w_size[n] + 2 * magnitude;
    row.magnitude[n] = magnitude;
  }
}

/// Σ_n of one row p; r_size = |r|.
void contract_row(SsdStateRow row, const double* r, const float* r_size, std::int64_t count, std::int64_t p,
                  SsdContraction& into) {
  double value = 0;
  double squares = 0;
  double fourths = 0;
#pragma omp simd reduction(+ : value, squares, fourths)
  for (std::int64_t n = 0; n < count; ++n) {
    const double term = row.state[n] * r[n];
    const double square = row.state[n] * row.state[n];
    value += term;
    squares += term * term;
    fourths += square * square;
  }
  into.fourths = p == 0 ? fourths : into.fourths + fourths;
  float magnitude = 0;
  float error = 0;
#pragma omp simd reduction(+ : magnitude, error)
  for (std::int64_t n = 0; n < count; ++n) {
    magnitude += r_size[n] * row.magnitude[n];
    error += r_size[n] * row.error[n];
  }
  into.value[p] = value;
  into.squares[p] = squares;
  into.magnitude[p] = magnitude;
  into.error[p] = error;
}

/// Row p's share of Σ_p.
void add_row(SsdStateRow row, double q, std::int64_t count, SsdContraction& into) {
  double* value = into.value.data();
  double* squares = into.squares.data();
#pragma omp simd
  for (std::int64_t n = 0; n < count; ++n) {
    const double term = row.state[n] * q;
    value[n] += term;
    squares[n] += term * term;
  }
  const auto size = static_cast<float>(std::abs(q));
  float* magnitude = into.magnitude.data();
  float* error = into.error.data();
#pragma omp simd
  for (std::int64_t n = 0; n < count; ++n) {
    magnitude[n] += size * row.magnitude[n];
    error[n] += size * row.error[n];
  }
}

/// K ← decay·K + weight·w·wᵀ, lower triangle. Returns a·rᵀKr + b·Σ K[n,n]·r[n]² where r is not null.
double advance_spread(double* spread, std::int64_t count, double decay, double weight, const double* w,
                      const double* r, double a, double b) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    double* row = spread + i * count;
    const double factor = weight * w[i];
#pragma omp simd
    for (std::int64_t j = 0; j <= i; ++j) row[j] = decay * row[j] + factor * w[j];
    if (r == nullptr) continue;
    double of_row = 0;
#pragma omp simd reduction(+ : of_row)
    for (std::int64_t j = 0; j < i; ++j) of_row += row[j] * r[j];
    sum += a * 2 * of_row * r[i] + (a + b) * row[i] * r[i] * r[i];
  }
  return std::max(sum, 0.0);
}

}  // namespace ssmbench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ssmbench {

HWY_EXPORT(advance_row);
HWY_EXPORT(contract_row);
HWY_EXPORT(add_row);
HWY_EXPORT(advance_spread);

namespace {

double largest_square(const double* values, std::int64_t count) {
  double largest = 0;
  for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, values[i] * values[i]);
  return largest;
}

}  // namespace

void SsdContraction::clear() {
  std::ranges::fill(value, 0.0);
  std::ranges::fill(magnitude, 0.0F);
  std::ranges::fill(error, 0.0F);
  std::ranges::fill(squares, 0.0);
}

SsdPass::SsdPass(std::int64_t headdim, std::int64_t dstate, bool reads_headdims)
    : headdim_(headdim),
      dstate_(dstate),
      state_(headdim * dstate),
      magnitude_(state_.size()),
      error_(state_.size()),
      last_v_(headdim),
      last_w_(dstate),
      w_(dstate),
      r_(dstate),
      of_states_(dstate * dstate),
      of_headdims_(reads_headdims ? headdim * headdim : 0) {}

void SsdPass::clear() {
  std::ranges::fill(state_, 0.0);
  std::ranges::fill(magnitude_, 0.0F);
  std::ranges::fill(error_, 0.0F);
  std::ranges::fill(last_v_, 0.0F);
  std::ranges::fill(last_w_, 0.0F);
  std::ranges::fill(of_states_, 0.0);
  std::ranges::fill(of_headdims_, 0.0);
}

void SsdPass::start_from(const float* state) {
  clear();
  std::copy_n(state, state_.size(), state_.begin());
  std::transform(state, state + state_.size(), magnitude_.begin(), [](float x) { return std::abs(x); });
}

void SsdPass::advance(const SsdUpdate& update, const SsdReads& reads) {
  const auto size_of = [](double x) { return static_cast<float>(std::abs(x)); };
  std::transform(update.w, update.w + dstate_, w_.begin(), size_of);
  if (reads.of_states != nullptr) std::transform(reads.r, reads.r + dstate_, r_.begin(), size_of);
  if (reads.of_headdims != nullptr) reads.of_headdims->clear();
  for (std::int64_t p = 0; p < headdim_; ++p) {
    const std::int64_t at = p * dstate_;
    const SsdStateRow row{state_.data() + at, magnitude_.data() + at, error_.data() + at};
    HWY_DYNAMIC_DISPATCH(advance_row)
    (update, p, last_v_[p], w_.data(), last_w_.data(), dstate_, row);
    if (reads.of_states != nullptr)
      HWY_DYNAMIC_DISPATCH(contract_row)(row, reads.r, r_.data(), dstate_, p, *reads.of_states);
    if (reads.of_headdims != nullptr)
      HWY_DYNAMIC_DISPATCH(add_row)(row, reads.q[p], dstate_, *reads.of_headdims);
  }
  std::transform(update.v, update.v + headdim_, last_v_.begin(), size_of);
  last_w_.swap(w_);
  advance_spreads(update, reads);
}

void SsdPass::advance_spreads(const SsdUpdate& update, const SsdReads& reads) {
  const double decay = update.decay * update.decay;
  const double of_states = HWY_DYNAMIC_DISPATCH(advance_spread)(of_states_.data(), dstate_, decay,
                                                                largest_square(update.v, headdim_), update.w,
                                                                reads.r, kTermRoundings, kPartRoundings);
  if (reads.of_states != nullptr) reads.of_states->spread = of_states;
  if (of_headdims_.empty()) return;
  const double of_headdims = HWY_DYNAMIC_DISPATCH(advance_spread)(of_headdims_.data(), headdim_, decay,
                                                                  largest_square(update.w, dstate_), update.v,
                                                                  reads.q, kTermRoundings, kPartRoundings);
  if (reads.of_headdims != nullptr) reads.of_headdims->spread = of_headdims;
}

double SsdPass::fourths_of_terms() const {
  double sum = 0;
  for (std::int64_t n = 0; n < dstate_; ++n) sum += of_states_[n * dstate_ + n] * of_states_[n * dstate_ + n];
  return static_cast<double>(headdim_) * sum;
}

void SsdPass::decay(double decay, double decay_error, double cumulative_error) {
  const std::vector<double> nothing(std::max(headdim_, dstate_), 0.0);
  advance({decay, decay_error, cumulative_error, nothing.data(), nothing.data(), nothing.data()}, {});
}

}  // namespace ssmbench
#endif
