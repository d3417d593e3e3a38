#include "sweep/disturbance.h"

#include "base/errors.h"
#include "device/floating_point.h"

namespace ssmbench {
namespace {

/// Of the time that bursts take, what may be spent on their outputs.
constexpr double kShareOfJudging = 0.05;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Disturbance::Disturbance(Device& device, const Problem& problem, const DeviceInputs& inputs,
                         const DeviceInputs* other_seed, PreparedRun& run, std::vector<HostTensor>& outputs,
                         Judge judge)
    : device_(device),
      inputs_(inputs),
      other_seed_(other_seed),
      run_(run),
      outputs_(outputs),
      judge_(std::move(judge)),
      draw_(problem) {
  for (auto& spec : problem.tensors())
    if (spec.role == Role::input) input_specs_.push_back(std::move(spec));
}

Disturbance::~Disturbance() {
  try {
    Disturbance::after_launch();
    undo(of_burst_);
    device_.synchronize();
  } catch (const DeviceError&) {  // a device that is lost has no inputs
  }
}

void Disturbance::exchange_inputs(const Exchange& exchange) {
  std::vector<SlicePair> pairs;
  for (const auto& spec : input_specs_)
    if (const auto pair = slices_of(exchange, spec, inputs_.views().at(spec.name).data))
      pairs.push_back(*pair);
  device_.exchange(pairs);
}

void Disturbance::undo(std::optional<Exchange>& exchange) {
  if (exchange) exchange_inputs(*exchange);
  exchange.reset();
}

void Disturbance::change_seed() {
  std::vector<SlicePair> pairs;
  for (const auto& spec : input_specs_)
    pairs.push_back({.first = inputs_.views().at(spec.name).data,
                     .second = other_seed_->views().at(spec.name).data,
                     .width = spec.bytes(),
                     .pitch = spec.bytes(),
                     .rows = 1});
  device_.exchange(pairs);
  is_other_seed_ = !is_other_seed_;
}

void Disturbance::begin_burst() {
  burst_start_ = Clock::now();
  if (!draw_.of_channels(random_)) return;
  of_burst_ = draw_.of_batch(random_);
  if (of_burst_) exchange_inputs(*of_burst_);
}

void Disturbance::before_launch() {
  of_launch_ = draw_.of_channels(random_);
  if (!of_launch_) of_launch_ = draw_.of_batch(random_);
  if (of_launch_) exchange_inputs(*of_launch_);
  if (other_seed_ != nullptr && std::bernoulli_distribution(0.5)(random_)) change_seed();
  run_.scatter_garbage(random_);
}

void Disturbance::after_launch() {
  undo(of_launch_);
  if (is_other_seed_) change_seed();
}

bool Disturbance::can_afford_to_judge() {
  const double share = kShareOfJudging * std::uniform_real_distribution<double>(0, 2)(random_);
  return !has_judged_.at(is_other_seed_ ? 1 : 0) || judging_seconds_ < share * burst_seconds_;
}

void Disturbance::end_burst() {
  burst_seconds_ += seconds_since(burst_start_);
  const auto start = Clock::now();
  const bool judges = judge_ && can_afford_to_judge();
  if (judges) {
    run_.copy_outputs(outputs_);  // at once: something may still be writing them
    std::vector<SlicePair> pairs;
    for (const auto* exchange : {&of_launch_, &of_burst_})
      for (const auto& output : outputs_)
        if (*exchange)
          if (const auto pair = slices_of(**exchange, output.spec, output.buffer.data()))
            pairs.push_back(*pair);
    exchange_slices(pairs);
  }
  const bool of_other_seed = is_other_seed_;
  after_launch();
  undo(of_burst_);
  run_.fill_workspace(garbage_byte(random_));
  reset_floating_point();  // before any other implementation runs
  if (!judges) return;
  has_judged_.at(of_other_seed ? 1 : 0) = true;
  judge_(outputs_, of_other_seed);
  judging_seconds_ += seconds_since(start);
}

}  // namespace ssmbench
