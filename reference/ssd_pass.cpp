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

/// One row p of SsdPass::advance.
void advance_row(const SsdUpdate& update, double v, double v_error, double last_v, const float* last_w,
                 std::int64_t count, SsdStateRow row) {
  const double decay = update.decay;
  const auto kept_share = static_cast<float>(decay);
  const auto kept_error = static_cast<float>(update.decay_error);
  const auto last = static_cast<float>(decay * update.cumulative_error * last_v);
  const auto v_magnitude = static_cast<float>(std::abs(v));
  const auto added_error = static_cast<float>(v_error);
#pragma omp simd
  for (std::int64_t n = 0; n < count; ++n) {
    row.state[n] = decay * row.state[n] + v * update.w[n];
    const float w = std::abs(static_cast<float>(update.w[n]));
    const float kept = kept_share * row.magnitude[n];
    const float magnitude = kept + v_magnitude * w;
    row.error[n] =
        kept_share * row.error[n] + kept_error * kept + last * last_w[n] + added_error * w + 2 * magnitude;
    row.magnitude[n] = magnitude;
  }
}

/// Σ_n of one row p.
void contract_row(const double* state, const float* magnitude, const float* error, const double* r,
                  std::int64_t count, std::int64_t p, SsdContraction& into) {
  double value = 0;
  double squares = 0;
  float magnitudes = 0;
  float errors = 0;
#pragma omp simd reduction(+ : value, squares, magnitudes, errors)
  for (std::int64_t n = 0; n < count; ++n) {
    const double term = state[n] * r[n];
    const float size = std::abs(static_cast<float>(r[n]));
    value += term;
    squares += term * term;
    magnitudes += size * magnitude[n];
    errors += size * error[n];
  }
  into.value[p] = value;
  into.squares[p] = squares;
  into.magnitude[p] = magnitudes;
  into.error[p] = errors;
}

/// Row p's share of Σ_p.
void add_row(const double* state, const float* magnitude, const float* error, double q, std::int64_t count,
             SsdContraction& into) {
  const auto size = static_cast<float>(std::abs(q));
#pragma omp simd
  for (std::int64_t n = 0; n < count; ++n) {
    const double term = state[n] * q;
    into.value[n] += term;
    into.squares[n] += term * term;
    into.magnitude[n] += size * magnitude[n];
    into.error[n] += size * error[n];
  }
}

/// K ← decay·K + weight·w·wᵀ, lower triangle.
void advance_spread(double* spread, std::int64_t count, double decay, double weight, const double* w) {
  for (std::int64_t i = 0; i < count; ++i) {
    double* row = spread + i * count;
    const double factor = weight * w[i];
#pragma omp simd
    for (std::int64_t j = 0; j <= i; ++j) row[j] = decay * row[j] + factor * w[j];
  }
}

/// a·rᵀKr + b·Σ K[n,n]·r[n]².
double read_spread(const double* spread, std::int64_t count, const double* r, double a, double b) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double* row = spread + i * count;
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
HWY_EXPORT(read_spread);

namespace {

double largest_square(const double* values, std::int64_t count) {
  double largest = 0;
  for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, values[i] * values[i]);
  return largest;
}

}  // namespace

SsdPass::SsdPass(std::int64_t headdim, std::int64_t dstate, bool reads_headdims)
    : headdim_(headdim),
      dstate_(dstate),
      state_(headdim * dstate),
      magnitude_(state_.size()),
      error_(state_.size()),
      last_v_(headdim),
      last_w_(dstate),
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

void SsdPass::advance(const SsdUpdate& update) {
  for (std::int64_t p = 0; p < headdim_; ++p) HWY_DYNAMIC_DISPATCH(advance_row)
  (update, update.v[p], update.v_error[p], last_v_[p], last_w_.data(), dstate_,
   {state_.data() + p * dstate_, magnitude_.data() + p * dstate_, error_.data() + p * dstate_});
  const auto size_of = [](double x) { return static_cast<float>(std::abs(x)); };
  std::transform(update.v, update.v + headdim_, last_v_.begin(), size_of);
  std::transform(update.w, update.w + dstate_, last_w_.begin(), size_of);
  const double decay = update.decay * update.decay;
  HWY_DYNAMIC_DISPATCH(advance_spread)
  (of_states_.data(), dstate_, decay, largest_square(update.v, headdim_), update.w);
  if (!of_headdims_.empty()) HWY_DYNAMIC_DISPATCH(advance_spread)
  (of_headdims_.data(), headdim_, decay, largest_square(update.w, dstate_), update.v);
}

void SsdPass::decay(double decay, double decay_error, double cumulative_error) {
  const std::vector<double> nothing(std::max(headdim_, dstate_), 0.0);
  advance({decay, decay_error, cumulative_error, nothing.data(), nothing.data(), nothing.data()});
}

void SsdPass::contract_states(const double* r, SsdContraction& into) const {
  for (std::int64_t p = 0; p < headdim_; ++p) {
    const std::int64_t row = p * dstate_;
    HWY_DYNAMIC_DISPATCH(contract_row)
    (state_.data() + row, magnitude_.data() + row, error_.data() + row, r, dstate_, p, into);
  }
  into.spread =
      HWY_DYNAMIC_DISPATCH(read_spread)(of_states_.data(), dstate_, r, kTermRoundings, kPartRoundings);
}

void SsdPass::contract_headdims(const double* q, SsdContraction& into) const {
  std::ranges::fill(into.value, 0.0);
  std::ranges::fill(into.magnitude, 0.0F);
  std::ranges::fill(into.error, 0.0F);
  std::ranges::fill(into.squares, 0.0);
  for (std::int64_t p = 0; p < headdim_; ++p) {
    const std::int64_t row = p * dstate_;
    HWY_DYNAMIC_DISPATCH(add_row)
    (state_.data() + row, magnitude_.data() + row, error_.data() + row, q[p], dstate_, into);
  }
  into.spread =
      HWY_DYNAMIC_DISPATCH(read_spread)(of_headdims_.data(), headdim_, q, kTermRoundings, kPartRoundings);
}

}  // namespace ssmbench
#endif
