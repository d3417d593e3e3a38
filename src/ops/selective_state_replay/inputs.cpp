#include "ops/selective_state_replay/inputs.h"

#include <algorithm>
#include <cmath>

#include "base/portable_math.h"
#include "base/random.h"

namespace ssmbench {

StateReplayInputs::StateReplayInputs(const Problem& problem, const InputSpec& spec)
    : replay_(problem),
      seed_(spec.seed),
      distribution_(&find_distribution(spec.distribution)),
      steps_(steps_of_replay(problem), spec),
      inverse_of_dt_(static_cast<std::size_t>(replay_.step.heads)) {
  fill_log_uniform(Stream(seed_, "dt centre"), distribution_->dt, 0, inverse_of_dt_);
  for (double& value : inverse_of_dt_) value = portable::inverse_softplus(value);
  const StateUpdate& step = replay_.step;
  for (std::int64_t slot = 0; slot < step.state_sequences(); ++slot)
    counts_.push_back(static_cast<double>(replay_.drawn_count(slot)));
  if (step.slots == 0) return;
  std::vector<double> source(static_cast<std::size_t>(step.batch));
  steps_.fill("source", 0, source);
  for (std::int64_t b = 0; b < step.batch; ++b)
    if (source[b] >= 0)
      counts_[static_cast<std::size_t>(source[b])] = static_cast<double>(replay_.drawn_count(b));
}

void StateReplayInputs::fill(std::string_view tensor, std::int64_t first, std::span<double> values) const {
  if (tensor == "ring_x" || tensor == "ring_B")
    return fill_projected(*distribution_, seed_, tensor, first, values);
  if (tensor == "ring_dt") return fill_ring_dt(first, values);
  if (tensor == "start") return fill_start(first, values);
  if (tensor == "count") {
    std::copy_n(counts_.begin() + first, values.size(), values.begin());
    return;
  }
  steps_.fill(tensor, first, values);
}

void StateReplayInputs::fill_ring_dt(std::int64_t first, std::span<double> values) const {
  const auto head = static_cast<std::size_t>(first / replay_.ring() % replay_.step.heads);
  Stream(seed_, "ring_dt").normals(first, values);
  for (double& value : values) value = portable::softplus(inverse_of_dt_[head] + kDeltaDeviation * value);
}

void StateReplayInputs::fill_start(std::int64_t first, std::span<double> values) const {
  Stream(seed_, "start").uniforms(first, values);
  for (double& value : values) value = std::floor(value * static_cast<double>(replay_.ring()));
}

}  // namespace ssmbench
