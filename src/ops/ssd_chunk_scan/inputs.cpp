#include "ops/ssd_chunk_scan/inputs.h"

#include <algorithm>
#include <cmath>

#include "base/portable_math.h"
#include "base/random.h"
#include "inputs/packed_sequences.h"
#include "model/problem.h"
#include "ops/ssd_chunk_scan/sequences.h"

namespace ssmbench {
namespace {

constexpr double kSlowestDecay = 1;
constexpr double kFastestDecay = 16;

constexpr std::int64_t kLeastBoundaries = 3;
constexpr std::int64_t kStepsPerBoundary = 1024;

}  // namespace

SsdChunkScanInputs::SsdChunkScanInputs(const Problem& problem, const InputSpec& spec)
    : scan_(problem),
      seed_(spec.seed),
      distribution_(&find_distribution(spec.distribution)),
      step_(scan_.nheads),
      stops_(SsdSequences(problem).stops) {
  fill_log_uniform(Stream(seed_, "step"), distribution_->dt, 0, step_);
  for (const double step : step_) inverse_of_step_.push_back(portable::inverse_softplus(step));
  if (const SsdSequences sequences(problem); sequences.packed)
    borders_ = draw_borders(seed_, sequences.count, scan_.seqlen, problem.choice("lengths"));
}

void SsdChunkScanInputs::fill(std::string_view tensor, std::int64_t first, std::span<double> values) const {
  if (tensor == "A") return fill_decay(first, values);
  if (tensor == "dt") return fill_dt(first, values);
  if (tensor == "dt_bias") return fill_dt_bias(first, values);
  if (tensor == "seq_idx") return fill_seq_idx(first, values);
  if (tensor == "cu_seqlens") {
    std::copy_n(borders_.begin() + first, values.size(), values.begin());
    return;
  }
  if (tensor == "states_at") return fill_states_at(first, values);
  fill_projected(*distribution_, seed_, tensor, first, values);
  if (tensor == "D")
    for (double& value : values) value = 1 + kSkipDeviation * value;
}

void SsdChunkScanInputs::fill_decay(std::int64_t first, std::span<double> values) const {
  const Stream stream(seed_, "A");
  if (distribution_->decay_rate) {
    fill_log_uniform(stream, *distribution_->decay_rate, first, values);
    for (double& value : values) value = -value;
  } else {
    stream.uniforms(first, values);
    for (double& value : values) value = -(kSlowestDecay + (kFastestDecay - kSlowestDecay) * value);
  }
}

void SsdChunkScanInputs::fill_dt(std::int64_t first, std::span<double> values) const {
  Stream(seed_, "dt").normals(first, values);
  const auto head = static_cast<std::size_t>(first % scan_.nheads);  // a row holds one value per head
  const bool bias_is_apart = scan_.dt_softplus && scan_.has_dt_bias;
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = (bias_is_apart ? 0 : inverse_of_step_[head + i]) + kDeltaDeviation * values[i];
  add_large_steps(*distribution_, seed_, "dt", first, values,
                  [&](std::size_t i) { return bias_is_apart ? inverse_of_step_[head + i] : 0; });
  if (scan_.dt_softplus) return;
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = portable::softplus(values[i]) - (scan_.has_dt_bias ? kPlainBiasShare * step_[head + i] : 0);
}

void SsdChunkScanInputs::fill_dt_bias(std::int64_t first, std::span<double> values) const {
  for (double& value : values) {
    value = scan_.dt_softplus ? inverse_of_step_[first] : kPlainBiasShare * step_[first];
    ++first;
  }
}

void SsdChunkScanInputs::fill_seq_idx(std::int64_t first, std::span<double> values) const {
  const std::int64_t length = scan_.seqlen;
  const std::int64_t batch = first / length;
  std::vector<double> draws(kLeastBoundaries + length / kStepsPerBoundary);
  Stream(seed_, "seq_idx").uniforms(batch * std::ssize(draws), draws);
  std::vector<std::int64_t> starts;  // of all sequences but the first
  for (const double draw : draws)
    starts.push_back(1 + static_cast<std::int64_t>(draw * static_cast<double>(length)));
  starts.push_back(starts.front() + 1);
  std::ranges::sort(starts);
  starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
  std::int64_t step = first % length;
  for (double& value : values) {
    value = static_cast<double>(std::ranges::upper_bound(starts, step) - starts.begin());
    ++step;
  }
}

void SsdChunkScanInputs::fill_states_at(std::int64_t first, std::span<double> values) const {
  Stream(seed_, "states_at").uniforms(first, values);
  for (double& value : values) {
    const std::int64_t begin = first * scan_.seqlen / stops_;
    const std::int64_t end = ++first * scan_.seqlen / stops_;
    value = static_cast<double>(begin) + std::floor(value * static_cast<double>(end - begin));
  }
}

}  // namespace ssmbench
