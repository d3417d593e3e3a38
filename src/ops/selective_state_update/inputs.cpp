#include "ops/selective_state_update/inputs.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/portable_math.h"
#include "base/random.h"

namespace ssmbench {
namespace {

constexpr double kLeastHeadRate = 1, kMostHeadRate = 16;
constexpr double kNoSlot = -1;
constexpr LogRange kLargestStates{1, 4};  // of rows with a scale

}  // namespace

StateUpdateInputs::StateUpdateInputs(const Problem& problem, const InputSpec& spec)
    : update_(problem),
      seed_(spec.seed),
      distribution_(&find_distribution(spec.distribution)),
      dt_(update_.heads),
      slots_(shuffled_slots(update_.slots, spec.seed)) {
  fill_log_uniform(Stream(seed_, "dt centre"), distribution_->dt, 0, dt_);
  for (const double dt : dt_) inverse_of_dt_.push_back(portable::inverse_softplus(dt));
}

void StateUpdateInputs::fill(std::string_view tensor, std::int64_t first, std::span<double> values) const {
  if (tensor == "A") return fill_rate(first, values);
  if (tensor == "dt") return fill_dt(first, values);
  if (tensor == "dt_bias") return fill_dt_bias(first, values);
  if (tensor == "source") return fill_source(first, values);
  if (tensor == "destination") return fill_destination(first, values);
  if (tensor == "seed") return fill_seed(values);
  if (tensor == "state_scale") return fill_scale(first, values);
  if (tensor == "state" && update_.has_scale()) return fill_state(first, values);
  fill_projected(*distribution_, seed_, tensor, first, values);
  if (tensor == "D")
    for (double& value : values) value = 1 + kSkipDeviation * value;
}

void StateUpdateInputs::fill_scale(std::int64_t first, std::span<double> values) const {
  fill_log_uniform(Stream(seed_, "state_scale"), kLargestStates, first, values);
  for (double& value : values) value /= largest_in_scale(update_.state_dtype);
}

/// N(0, 1) like other states, cut off where its scale ends.
void StateUpdateInputs::fill_state(std::int64_t first, std::span<double> values) const {
  fill_projected(*distribution_, seed_, "state", first, values);
  std::array<double, 1> scale{};
  fill_scale(first / update_.dstate, scale);
  const double most = largest_in_scale(update_.state_dtype);
  for (double& value : values) value = std::clamp(value / scale[0], -most, most);
}

void StateUpdateInputs::fill_seed(std::span<double> values) const {
  Stream(seed_, "seed").uniforms(0, values);
  for (double& value : values) value = std::floor(value * 0x1p24);
}

void StateUpdateInputs::fill_rate(std::int64_t first, std::span<double> values) const {
  if (distribution_->decay_rate) {
    fill_log_uniform(Stream(seed_, "A"), *distribution_->decay_rate, first, values);
    for (double& value : values) value = -value;
  } else if (update_.rate_per_state) {
    for (double& value : values) value = -static_cast<double>(first++ % update_.dstate + 1);
  } else {
    Stream(seed_, "A").uniforms(first, values);
    for (double& value : values) value = -(kLeastHeadRate + (kMostHeadRate - kLeastHeadRate) * value);
  }
}

void StateUpdateInputs::fill_dt(std::int64_t first, std::span<double> values) const {
  const bool bias_is_apart = update_.dt_softplus && update_.has_dt_bias;
  Stream(seed_, "dt").normals(first, values);
  const auto head = static_cast<std::size_t>(first % update_.heads);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = (bias_is_apart ? 0 : inverse_of_dt_[head + i]) + kDeltaDeviation * values[i];
  add_large_steps(*distribution_, seed_, "dt", first, values,
                  [&](std::size_t i) { return bias_is_apart ? inverse_of_dt_[head + i] : 0; });
  if (update_.dt_softplus) return;
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = portable::softplus(values[i]) - (update_.has_dt_bias ? kPlainBiasShare * dt_[head + i] : 0);
}

void StateUpdateInputs::fill_dt_bias(std::int64_t first, std::span<double> values) const {
  for (double& value : values) {
    value = update_.dt_softplus ? inverse_of_dt_[first] : kPlainBiasShare * dt_[first];
    ++first;
  }
}

/// Where each token has a slot, the state is in that of one of them: of the last draft that was accepted.
void StateUpdateInputs::fill_source(std::int64_t first, std::span<double> values) const {
  for (double& value : values) {
    const std::int64_t row = first++;
    const std::int64_t slot =
        update_.store == StateStore::each ? row * update_.tokens + row % update_.tokens : row;
    value = update_.is_padding(row) ? kNoSlot : static_cast<double>(slots_[slot]);
  }
}

void StateUpdateInputs::fill_destination(std::int64_t first, std::span<double> values) const {
  for (double& value : values) {
    const std::int64_t row = first / update_.tokens;
    const std::int64_t token = first++ % update_.tokens;
    const bool is_last = token == update_.tokens - 1;
    value = kNoSlot;
    if (update_.is_padding(row)) continue;
    if (update_.store == StateStore::each) value = static_cast<double>(slots_[row * update_.tokens + token]);
    if (update_.store == StateStore::last && is_last) value = static_cast<double>(slots_[row]);
    if (update_.store == StateStore::apart && is_last)
      value = static_cast<double>(slots_[update_.batch + row]);
  }
}

}  // namespace ssmbench
