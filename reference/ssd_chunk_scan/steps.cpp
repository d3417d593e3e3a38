#include "reference/ssd_chunk_scan/steps.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "reference/common/activations.h"

// A chunked implementation adds up Δ·A over a chunk and takes the decay from step s to t as
// exp(sum_t − sum_s): an error relative to the sums becomes one of the exponent, and so a relative error of
// the decay. A sum over up to 256 steps by halves rounds 8 times at its own size, two sums 16 times, which is
// some √16 roundings together (Higham & Mary, "A New Approach to Probabilistic Rounding Error Analysis",
// 2019). A chunk may start anywhere before s; the sums are at most those of |Δ·A| over the 256 steps up to s,
// which what step s adds to the state is charged with when it first decays, plus the steps since, each of
// which charges its own |Δ·A|.

namespace ssmbench {
namespace {

constexpr double kSumRoundings = 4;

/// |Δ| so close to a limit that an implementation may see it on the other side of it.
bool is_close(const Rounded<double>& delta, double limit) {
  if (!std::isfinite(limit)) return false;
  const double room = 4 * unit_roundoff(DType::f32) * (delta.error + std::abs(limit));
  return std::abs(delta.value - limit) < room;
}

void clamp(SsdStep& step, double low, double high) {
  step.slope_may_jump = is_close(step.delta, low) || is_close(step.delta, high);
  if (!(step.delta.value < low || step.delta.value > high)) return;  // NaN stays NaN
  const double limit = step.delta.value < low ? low : high;
  step.delta = {limit, std::abs(limit), std::abs(limit)};  // a limit is rounded to f32
  step.slope = {};
}

}  // namespace

void load_row(const TensorView& view, std::int64_t first, std::int64_t count, double* into) {
  const auto* halves = static_cast<const std::uint16_t*>(view.data) + first;
  switch (view.dtype) {
    case DType::f32:
      std::copy_n(static_cast<const float*>(view.data) + first, count, into);
      return;
    case DType::f16:
      std::transform(halves, halves + count, into, f16_to_float);
      return;
    case DType::bf16:
      std::transform(halves, halves + count, into, bf16_to_float);
      return;
    default:
      throw std::logic_error("load_row: not an io dtype");
  }
}

double float_of(const TensorSet& tensors, const char* name, std::int64_t index) {
  const TensorView* view = tensors.find(name);
  return view == nullptr ? 0 : static_cast<const float*>(view->data)[index];
}

std::vector<SsdStep> ssd_steps(const SsdChunkScan& scan, const TensorSet& inputs, const SsdStretch& sequence,
                               std::int64_t head) {
  const TensorView& dt = inputs.at("dt");
  const TensorView* seq_idx = inputs.find("seq_idx");
  const double A = float_of(inputs, "A", head);
  const double bias = float_of(inputs, "dt_bias", head);
  std::vector<SsdStep> steps(sequence.steps);
  std::vector<double> exponents(sequence.steps);  // |Δ·A|
  for (std::int64_t t = 0; t < sequence.steps; ++t) {
    SsdStep& step = steps[t];
    const std::int64_t at = sequence.begin + t;
    const Step raw = step_of(load_as_double(dt.data, at * scan.nheads + head, dt.dtype), bias,
                             scan.has_dt_bias, scan.dt_softplus);
    step.delta = raw.delta;
    step.slope = raw.slope;
    clamp(step, scan.dt_low, scan.dt_high);
    if (seq_idx != nullptr && t > 0) {
      const auto* number = static_cast<const std::int32_t*>(seq_idx->data) + at;
      step.starts = number[0] != number[-1];
    }
    exponents[t] = std::abs(step.delta.value * A);
    step.decay = step.starts ? 0 : std::exp(step.delta.value * A);
    step.decay_error = std::abs(A) * step.delta.error + (1 + kSumRoundings) * exponents[t] + kExpError;
  }
  for (std::int64_t t = 0; t < sequence.steps; ++t) {
    const std::int64_t first = std::max<std::int64_t>(0, t + 1 - kLongestChunk);
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t s = first; s <= t; ++s) sum += exponents[s];
    steps[t].cumulative_error = kSumRoundings * sum;
  }
  return steps;
}

}  // namespace ssmbench
