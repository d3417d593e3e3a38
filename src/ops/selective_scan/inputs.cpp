#include "ops/selective_scan/inputs.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/portable_math.h"
#include "base/random.h"
#include "inputs/packed_sequences.h"

namespace ssmbench {
namespace {

constexpr double kS4dLinRate = 0.5;
constexpr double kAsymmetryDeviation = 0.1;    // of W, beside K: distributions.h
const double kPartDeviation = std::sqrt(0.5);  // two parts make a mean square of 1

bool has_two_parts(std::string_view tensor) {
  return tensor == "B" || tensor == "C" || tensor == "initial_state" || tensor == "dlast_state" ||
         tensor == "x";
}

}  // namespace

ScanInputs::ScanInputs(const Problem& problem, const InputSpec& spec)
    : scan_(problem), seed_(spec.seed), distribution_(&find_distribution(spec.distribution)), dt_(scan_.dim) {
  fill_log_uniform(Stream(seed_, "dt"), distribution_->dt, 0, dt_);
  for (const double step : dt_) inverse_of_dt_.push_back(portable::inverse_softplus(step));
  if (const PackedSequences sequences(problem); sequences.packed)
    borders_ = draw_borders(seed_, sequences.count, scan_.seqlen, problem.choice("lengths"));
}

void ScanInputs::fill(std::string_view tensor, std::int64_t first, std::span<double> values) const {
  if (tensor == "A") {
    if (scan_.dense) return fill_dense_decay(first, values);
    return scan_.complex ? fill_complex_decay(first, values) : fill_decay(first, values);
  }
  if (tensor == "delta") return fill_delta(first, values);
  if (tensor == "delta_bias") return fill_delta_bias(first, values);
  if (tensor == "cu_seqlens") {
    std::copy_n(borders_.begin() + first, values.size(), values.begin());
    return;
  }
  fill_projected(*distribution_, seed_, tensor, first, values);
  if (tensor == "D")
    for (double& value : values) value = 1 + kSkipDeviation * value;
  if (scan_.complex && has_two_parts(tensor))
    for (double& value : values) value *= kPartDeviation;
}

void ScanInputs::fill_decay(std::int64_t first, std::span<double> values) const {
  if (distribution_->decay_rate) {
    fill_log_uniform(Stream(seed_, "A"), *distribution_->decay_rate, first, values);
    for (double& value : values) value = -value;
  } else {
    for (double& value : values) value = -static_cast<double>(first++ % scan_.dstate + 1);
  }
}

void ScanInputs::fill_complex_decay(std::int64_t first, std::span<double> values) const {
  for (double& value : values) {
    const std::int64_t element = first / 2;
    if (first++ % 2 != 0)
      value = std::numbers::pi * static_cast<double>(element % scan_.dstate);
    else if (distribution_->decay_rate)
      fill_decay(element, {&value, 1});
    else
      value = -kS4dLinRate;
  }
}

void ScanInputs::fill_dense_decay(std::int64_t first, std::span<double> values) const {
  const std::int64_t states = scan_.dstate;
  const Stream turn(seed_, "A.turn");          // K[i][j] = −K[j][i], element (i, j) with i < j
  const Stream coupling(seed_, "A.coupling");  // W
  const auto draw = [](const Stream& stream, std::int64_t at) {
    double value = 0;
    stream.normals(at, {&value, 1});
    return value;
  };
  for (double& value : values) {
    const std::int64_t matrix = first / (states * states) * states * states;
    const std::int64_t channel = matrix / states;  // first state of the channel
    const std::int64_t i = first / states % states;
    const std::int64_t j = first % states;
    double decay_i = 0;
    double decay_j = 0;
    fill_decay(channel + i, {&decay_i, 1});
    fill_decay(channel + j, {&decay_j, 1});
    if (i == j) {
      value = decay_i;
    } else {
      const double turned = draw(turn, matrix + std::min(i, j) * states + std::max(i, j));
      const double entry = (i < j ? turned : -turned) + kAsymmetryDeviation * draw(coupling, first);
      value = std::sqrt(decay_i * decay_j) * entry / std::sqrt(static_cast<double>(states));
    }
    ++first;
  }
}

void ScanInputs::fill_delta(std::int64_t first, std::span<double> values) const {
  const std::int64_t channel = first / scan_.seqlen % scan_.dim;
  const bool bias_is_apart = scan_.delta_softplus && scan_.has_delta_bias;
  const double centre = bias_is_apart ? 0 : inverse_of_dt_[channel];
  Stream(seed_, "delta").normals(first, values);
  for (double& value : values) value = centre + kDeltaDeviation * value;
  add_large_steps(*distribution_, seed_, "delta", first, values,
                  [&](std::size_t) { return bias_is_apart ? inverse_of_dt_[channel] : 0; });
  if (scan_.delta_softplus) return;
  const double bias = scan_.has_delta_bias ? kPlainBiasShare * dt_[channel] : 0;
  for (double& value : values) value = portable::softplus(value) - bias;
}

void ScanInputs::fill_delta_bias(std::int64_t first, std::span<double> values) const {
  for (double& value : values) {
    value = scan_.delta_softplus ? inverse_of_dt_[first] : kPlainBiasShare * dt_[first];
    ++first;
  }
}

}  // namespace ssmbench
