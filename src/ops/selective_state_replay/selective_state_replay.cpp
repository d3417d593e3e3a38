#include "ops/selective_state_replay/selective_state_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>

#include "base/errors.h"
#include "ops/selective_state_replay/file_form.h"
#include "ops/selective_state_replay/inputs.h"
#include "ops/selective_state_replay/parts.h"

namespace ssmbench {
namespace {

constexpr const char* kFlushes[]{"mixed", "none", "all"};  // in the order of Flush

/// Axes of steps that a replay has not: what it does with states is its own.
constexpr std::array kOwnOfSteps{"form", "dim", "store", "intermediate", "rounding"};

bool is_own_of_steps(const AxisSpec& axis) {
  return std::ranges::find(kOwnOfSteps, axis.name) != kOwnOfSteps.end();
}

std::vector<AxisSpec> replay_axes() {
  std::vector<AxisSpec> axes;
  for (AxisSpec axis : selective_state_update().axes) {
    if (is_own_of_steps(axis)) continue;
    axis.only_with.reset();
    if (axis.name == "state_dtype") axis.choices = {"f32", "f16", "bf16"};
    axes.push_back(std::move(axis));
  }
  axes.push_back({.name = "window", .id_token = "w", .fallback = std::int64_t{16}});
  axes.push_back({.name = "flush",
                  .kind = AxisKind::choice,
                  .id_token = "flush",
                  .choices = {std::begin(kFlushes), std::end(kFlushes)},
                  .fallback = kFlushes[0]});
  return axes;
}

TensorSpec tensor(const char* name, Role role, DType dtype, Shape shape, const std::string& axes) {
  std::vector<int> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  return {name, role, dtype, std::move(shape), std::move(order), axes};
}

/// The rings as inputs or as outputs.
void add_rings(const StateReplay& replay, DType io, Role role, std::vector<TensorSpec>& all) {
  const StateUpdate& step = replay.step;
  const std::int64_t slots = step.state_sequences();
  const std::int64_t rows = replay.ring();
  const std::string slot = step.slots > 0 ? "s" : "b";
  all.push_back(tensor("ring_x", role, io, {slots, step.heads, rows, step.headdim}, slot + "hrp"));
  all.push_back(tensor("ring_B", role, io, {slots, step.groups, rows, step.dstate}, slot + "grn"));
  all.push_back(tensor("ring_dt", role, DType::f32, {slots, step.heads, rows}, slot + "hr"));
}

std::vector<TensorSpec> replay_tensors(const Problem& problem) {
  const StateReplay replay(problem);
  const std::int64_t slots = replay.step.state_sequences();
  const std::string slot = replay.step.slots > 0 ? "s" : "b";
  std::vector<TensorSpec> all;
  for (auto& spec : steps_of_replay(problem).tensors()) {
    if (spec.name == "destination") continue;
    const bool is_state_before = spec.name == "state" && spec.role == Role::input;
    all.push_back(std::move(spec));
    if (!is_state_before) continue;
    add_rings(replay, problem.dtype(), Role::input, all);
    for (const char* name : {"start", "count"})
      all.push_back(tensor(name, Role::input, DType::i32, {slots}, slot));
  }
  add_rings(replay, problem.dtype(), Role::output, all);
  return all;
}

std::optional<std::string> replay_contradiction(const Problem& problem) {
  try {
    const StateReplay replay(problem);
    if (replay.flush == Flush::none && replay.window < replay.step.tokens)
      return fmt::format("flush none with {} tokens, more than the window of {}", replay.step.tokens,
                         replay.window);
  } catch (const ContractError& error) {
    return error.what();
  }
  return {};
}

/// Of each row: the checkpoint, the tokens in its ring, the new ones in and out, and the checkpoint again
/// where it is stored.
Work replay_work(const Problem& problem, Math /*math*/) {
  const StateReplay replay(problem);
  const StateUpdate& step = replay.step;
  const auto io = static_cast<double>(size_of(problem.dtype()));
  const auto heads = static_cast<double>(step.heads);
  const auto dstate = static_cast<double>(step.dstate);
  const double state_bytes =
      static_cast<double>(step.states_of_sequence()) * static_cast<double>(size_of(step.state_dtype));
  const double token_bytes = heads * static_cast<double>(step.headdim) * io +
                             static_cast<double>(step.groups) * dstate * io + heads * sizeof(float);
  Work work{};
  for (const auto& spec : problem.tensors()) {
    const bool is_in_place = spec.name == "state" || spec.name.starts_with("ring_");
    if (!is_in_place) work.bytes += static_cast<double>(spec.bytes());
  }
  const auto fresh = static_cast<double>(step.tokens);
  for (std::int64_t b = 0; b < step.batch; ++b) {
    if (step.is_padding(b)) continue;
    const std::int64_t count = replay.drawn_count(b);
    const auto old = static_cast<double>(count);
    work.bytes += (replay.stores(count) ? 2 : 1) * state_bytes + (old + fresh) * token_bytes;
    work.exponentials += (old + fresh) * heads;
    work.fmas += (2 * old + 3 * fresh) * static_cast<double>(step.states_of_sequence());
  }
  return work;
}

InputFill replay_inputs(const Problem& problem, const InputSpec& spec) {
  return fill_from(StateReplayInputs(problem, spec));
}

const OpRegistration registration(selective_state_replay());

}  // namespace

const OpSpec& selective_state_replay() {
  static const OpSpec spec{
      .name = "selective_state_replay",
      .summary = "decoding steps of Mamba-2 from a checkpoint and the tokens since, kept in a ring",
      .axes = replay_axes(),
      .tensors = replay_tensors,
      .contradiction = replay_contradiction,
      .inputs = replay_inputs,
      .least_work = replay_work,
      .file = state_replay_file_form(),
      .parts = {replay_as_steps(), replay_in_slots()},
      .look_alikes = {{"B", "C"}}};
  return spec;
}

Problem steps_of_replay(const Problem& replay) {
  Axes axes{{"form", std::string("mamba2")}};
  for (const auto& [name, value] : replay.axes())
    if (selective_state_update().find_axis(name) != nullptr) axes[name] = value;
  if (replay.size("slots") > 0) axes["store"] = std::string("none");
  return {selective_state_update(), axes};
}

StateReplay::StateReplay(const Problem& problem)
    : step(steps_of_replay(problem)),
      window(problem.size("window")),
      flush(static_cast<Flush>(std::ranges::find(kFlushes, problem.choice("flush")) - kFlushes)) {}

/// Spread evenly over what the axis allows, so that the work of a launch does not depend on luck.
std::int64_t StateReplay::drawn_count(std::int64_t b) const {
  const std::int64_t least = flush == Flush::all ? std::max<std::int64_t>(window - step.tokens + 1, 0) : 0;
  const std::int64_t most = flush == Flush::none ? window - step.tokens : window;
  const std::int64_t counts = most - least + 1;
  // Another stride than 1, so that padding does not always take the same counts; without a common divisor, so that
  // every count comes up.
  std::int64_t stride = 5;
  while (std::gcd(stride, counts) != 1) ++stride;
  return least + b * stride % counts;
}

}  // namespace ssmbench
