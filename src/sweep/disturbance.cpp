#include "sweep/disturbance.h"

#include <algorithm>

#include "base/errors.h"
#include "bench/statistics.h"
#include "device/floating_point.h"

namespace ssmbench {
namespace {

/// How much of the time that bursts take may be spent on their outputs, ...
constexpr double kShareOfJudging = 0.08;
/// ... and the chance of a launch at the end of a burst to be judged whatever that takes.
constexpr double kLeastChance = 0.15;
/// What judging takes is the median of so many: a busy machine makes some take many times as long.
constexpr std::size_t kLatest = 31;
/// The share of launches that find inputs shuffled: most of them, so that their time is the
/// median's. The others show sums over channels, of which rows have no reference.
constexpr double kShareOfShuffled = 2.0 / 3;
constexpr int kRowsOfLaunch = 2;

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
      draw_(problem),
      single_row_(problem) {
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

void Disturbance::shuffle_inputs() {
  std::vector<void*> data;
  for (const auto& spec : input_specs_) data.push_back(inputs_.views().at(spec.name).data);
  shuffled_ = draw_.stretches(input_specs_, data, random_);
  if (is_shuffled()) device_.exchange(shuffled_);
}

void Disturbance::before_launch() {
  of_launch_ = draw_.of_channels(random_);
  if (!of_launch_) of_launch_ = draw_.of_batch(random_);
  if (of_launch_) exchange_inputs(*of_launch_);
  if (other_seed_ != nullptr && std::bernoulli_distribution(0.5)(random_)) change_seed();
  if (single_row_.problem() && std::bernoulli_distribution(kShareOfShuffled)(random_)) shuffle_inputs();
  run_.scatter_garbage(random_);
  held_signals_.reset();
}

void Disturbance::launch_returned() {
  held_signals_.emplace();
}

void Disturbance::after_launch() {
  if (is_shuffled()) device_.exchange(shuffled_);
  shuffled_.clear();
  undo(of_launch_);
  if (is_other_seed_) change_seed();
}

bool Disturbance::draws_to_judge() {
  if (!has_judged_such() || judging_seconds_.empty()) return true;
  std::vector<double> sorted = judging_seconds_;
  std::ranges::sort(sorted);
  const double chance = kShareOfJudging * (burst_seconds_ / bursts_) / quantile(sorted, 0.5);
  return std::bernoulli_distribution(std::clamp(chance, kLeastChance, 1.0))(random_);
}

void Disturbance::put_back_outputs() {
  std::vector<SlicePair> pairs;
  for (const auto* exchange : {&of_launch_, &of_burst_})
    for (const auto& output : outputs_)
      if (*exchange)
        if (const auto pair = slices_of(**exchange, output.spec, output.buffer.data()))
          pairs.push_back(*pair);
  exchange_slices(pairs);
}

std::vector<RowOfLaunch> Disturbance::rows_of_launch() {
  std::vector<RowOfLaunch> rows;
  for (int i = 0; i < kRowsOfLaunch; ++i) rows.push_back({single_row_.draw(random_), {}, {}});
  for (const auto& spec : input_specs_) {
    const void* data = inputs_.views().at(spec.name).data;
    std::optional<HostTensor> copy;
    if (!device_.shares_host_memory()) {
      copy.emplace(spec);
      device_.copy_out(copy->buffer.data(), data, spec.bytes());
      data = copy->buffer.data();
    }
    for (auto& row : rows) row.inputs.push_back(single_row_.part(row.row, spec, data));
  }
  for (const auto& output : outputs_)
    if (single_row_.owns_part(output.spec))
      for (auto& row : rows)
        row.outputs.push_back(single_row_.part(row.row, output.spec, output.buffer.data()));
  return rows;
}

void Disturbance::end_burst() {
  burst_seconds_ += seconds_since(burst_start_);
  ++bursts_;
  const auto start = Clock::now();
  const bool judges = judge_ && draws_to_judge();
  if (judges) run_.copy_outputs(outputs_);  // at once: something may still be writing them
  held_signals_.reset();
  std::vector<RowOfLaunch> rows;
  if (judges && is_shuffled()) rows = rows_of_launch();
  if (judges && !is_shuffled()) put_back_outputs();
  if (judges) has_judged_such() = true;
  const bool of_other_seed = is_other_seed_;
  after_launch();
  undo(of_burst_);
  run_.fill_workspace(garbage_byte(random_));
  reset_floating_point();  // before any other implementation runs
  if (!judges) return;
  judge_({.outputs = outputs_, .of_other_seed = of_other_seed, .rows = rows});
  judging_seconds_.resize(std::min(judged_ + 1, kLatest));
  judging_seconds_[judged_++ % kLatest] = seconds_since(start);
}

}  // namespace ssmbench
