// Mamba-2 as Mamba-1 with as many channels as heads times head dims, and what a head shares repeated for
// each; tokens as steps.

#include "ops/selective_state_update/parts.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <stdexcept>

#include "inputs/unnamed_slots.h"
#include "model/problem.h"
#include "model/tensor_map.h"
#include "ops/selective_state_update/selective_state_update.h"

namespace ssmbench {
namespace {

std::optional<std::string> not_heads(const Problem& whole) {
  if (whole.choice("form") != "mamba2") return "form mamba1 has no heads";
  return {};
}

Problem channels_of(const Problem& whole) {
  auto axes = whole.axes();
  const std::int64_t channels = whole.size("nheads") * whole.size("headdim");
  axes.erase("nheads");
  axes.erase("headdim");
  axes["form"] = "mamba1";
  axes["dim"] = channels;
  return {whole.op(), axes};
}

/// Position in `axes` of the letter, or nothing.
std::optional<std::size_t> position(const std::string& axes, char letter) {
  const auto at = axes.find(letter);
  return at == std::string::npos ? std::nullopt : std::optional(at);
}

/// Writes the index in a Mamba-2 tensor with axes `heads` of the element at index `here` of the Mamba-1 tensor
/// with axes `channels`: (…, head, …) or (…, head, p, …).
void to_heads(const std::string& channels, const Shape& here, const std::string& heads, Shape& there,
              std::int64_t headdim) {
  for (std::size_t axis = 0; axis < heads.size(); ++axis) {
    const auto same = position(channels, heads[axis]);
    const auto channel = position(channels, 'd');
    if (same)
      there[axis] = here[*same];
    else if (heads[axis] == 'h')
      there[axis] = here[*channel] / headdim;
    else if (heads[axis] == 'p')
      there[axis] = here[*channel] % headdim;
    else
      there[axis] = 0;  // the one group
  }
}

std::vector<HostTensor> as_channels(const Problem& whole, const std::vector<HostTensor>& inputs,
                                    const RunPart& run) {
  const Problem channels = channels_of(whole);
  const std::int64_t headdim = whole.size("headdim");
  std::vector<HostTensor> channel_inputs;
  for (const auto& spec : channels.tensors()) {
    if (spec.role != Role::input) continue;
    const HostTensor& from = *find_tensor(inputs, spec.name);
    channel_inputs.push_back(gathered(spec, from, [&](const Shape& here, Shape& there) {
      to_heads(spec.axes, here, from.spec.axes, there, headdim);
    }));
  }
  const auto results = run(channels, channel_inputs);
  std::vector<HostTensor> outputs = blank_outputs(whole);
  for (auto& output : outputs) {
    const HostTensor& result = *find_tensor(results, output.spec.name);
    scatter(result, output, [&](const Shape& here, Shape& there) {
      to_heads(result.spec.axes, here, output.spec.axes, there, headdim);
    });
  }
  return outputs;
}

std::optional<std::string> not_in_steps(const Problem& whole) {
  const StateUpdate update(whole);
  if (update.tokens == 1 && update.slots == 0) return "one token from a state of its own is a step";
  if (update.state_dtype != DType::f32)
    return "steps round their states to " + std::string(name_of(update.state_dtype)) + ", tokens do not";
  return {};
}

Problem step_of(const Problem& whole) {
  return whole.with({{"tokens", std::int64_t{1}},
                     {"slots", std::int64_t{0}},
                     {"store", std::string("last")},
                     {"pads", std::int64_t{0}},
                     {"intermediate", false}});
}

/// Slots by row, or −1; as if row b had slot b where there are no slots.
std::vector<std::int64_t> slots_of(const HostTensor* indices, const StateUpdate& update, std::int64_t token,
                                   std::int64_t tokens) {
  std::vector<std::int64_t> slots;
  for (std::int64_t b = 0; b < update.batch; ++b)
    slots.push_back(indices == nullptr
                        ? (token == tokens - 1 ? b : -1)
                        : static_cast<const std::int32_t*>(indices->buffer.data())[b * tokens + token]);
  return slots;
}

/// The inputs of a step at `token` but for its state.
HostTensor of_token(const TensorSpec& spec, const HostTensor& from, std::int64_t token) {
  const auto time = position(from.spec.axes, kTimeLetter);
  return gathered(spec, from, [&](const Shape& here, Shape& there) {
    for (std::size_t axis = 0, next = 0; axis < there.size(); ++axis)
      there[axis] = axis == time ? token : here[next++];
  });
}

/// Copies row b of `state` to where `index` says that it goes in `output`, if anywhere.
void store_rows(const HostTensor& state, HostTensor& output, const StateUpdate& update,
                const std::function<std::int64_t(std::int64_t b)>& index) {
  const std::size_t bytes = state.spec.bytes() / static_cast<std::size_t>(update.batch);
  for (std::int64_t b = 0; b < update.batch; ++b)
    if (const std::int64_t to = index(b); to >= 0)
      std::memcpy(static_cast<std::byte*>(output.buffer.data()) + static_cast<std::size_t>(to) * bytes,
                  static_cast<const std::byte*>(state.buffer.data()) + static_cast<std::size_t>(b) * bytes,
                  bytes);
}

std::vector<HostTensor> in_steps(const Problem& whole, const std::vector<HostTensor>& inputs,
                                 const RunPart& run) {
  const StateUpdate update(whole);
  const Problem step = step_of(whole);
  std::vector<HostTensor> outputs = blank_outputs(whole);  // out, state, intermediate
  const HostTensor& cache = *find_tensor(inputs, "state");
  std::memcpy(outputs[1].buffer.data(), cache.buffer.data(), cache.spec.bytes());
  const auto source = slots_of(find_tensor(inputs, "source"), update, 0, 1);
  std::optional<HostTensor> state;
  for (std::int64_t t = 0; t < update.tokens; ++t) {
    std::vector<HostTensor> step_inputs;
    for (const auto& spec : step.tensors()) {
      if (spec.role != Role::input) continue;
      if (spec.name == "state" && state)
        step_inputs.push_back(std::move(*state));
      else if (spec.name == "state")
        step_inputs.push_back(gathered(spec, cache, [&](const Shape& here, Shape& there) {
          there = here;
          there[0] = std::max<std::int64_t>(source[static_cast<std::size_t>(here[0])], 0);  // padding: any
        }));
      else
        step_inputs.push_back(of_token(spec, *find_tensor(inputs, spec.name), t));
    }
    auto results = run(step, step_inputs);  // out, state
    scatter(results[0], outputs[0], [&](const Shape& here, Shape& there) {
      for (std::size_t axis = 0, next = 0; axis < there.size(); ++axis)
        there[axis] = outputs[0].spec.axes[axis] == kTimeLetter ? t : here[next++];
    });
    const auto slots = slots_of(find_tensor(inputs, "destination"), update, t, update.tokens);
    store_rows(results[1], outputs[1], update,
               [&](std::int64_t b) { return slots[static_cast<std::size_t>(b)]; });
    if (update.has_intermediate)
      store_rows(results[1], outputs[2], update, [&](std::int64_t b) { return b * update.tokens + t; });
    state = std::move(results[1]);
  }
  return outputs;
}

constexpr double kEnoughStates = 64;  // by chance two seeds round no state differently

std::optional<std::string> not_seeded(const Problem& whole) {
  const StateUpdate update(whole);
  if (!update.stochastic) return "states are rounded to nearest";
  if (update.store == StateStore::none && !update.has_intermediate) return "no state is stored";
  if (update.states() < kEnoughStates) return "too few states for seeds to show";
  return {};
}

std::vector<HostTensor> with_other_seed(const Problem& whole, const std::vector<HostTensor>& inputs,
                                        const RunPart& run) {
  std::vector<HostTensor> others;
  for (const auto& input : inputs) {
    others.emplace_back(input.spec);
    std::memcpy(others.back().buffer.data(), input.buffer.data(), input.spec.bytes());
    if (input.spec.name == "seed") ++*static_cast<std::int64_t*>(others.back().buffer.data());
  }
  const auto one = run(whole, inputs);
  auto other = run(whole, others);
  for (std::size_t i = 0; i < one.size(); ++i)
    if (one[i].spec.name != "out" && one[i].spec.name != "state_scale" &&
        std::memcmp(one[i].buffer.data(), other[i].buffer.data(), one[i].spec.bytes()) != 0)
      return other;
  throw std::runtime_error("another seed gives the same bits");
}

}  // namespace

PartwiseComputation heads_as_channels() {
  return {.check = "mamba1",
          .parts_op = "selective_state_update",
          .summary = "form mamba2 against form mamba1 with dt, A, D and dt_bias repeated over the head",
          .inapplicable = not_heads,
          .compute = as_channels};
}

PartwiseComputation tokens_as_steps() {
  return {.check = "steps",
          .parts_op = "selective_state_update",
          .summary = "tokens against steps one after the other, states in slots against states of their own",
          .inapplicable = not_in_steps,
          .compute = in_steps};
}

PartwiseComputation other_seed() {
  return {.check = "seeds",
          .parts_op = "selective_state_update",
          .summary = "stochastic rounding against the same with another seed, which has other bits",
          .inapplicable = not_seeded,
          .compute = with_other_seed};
}

PartwiseComputation slots_that_nobody_names() {
  return {.check = "slots",
          .parts_op = "selective_state_update",
          .summary = "unused slots full of garbage: they keep it, and nothing else changes",
          .inapplicable = no_slots,
          .compute = [](const Problem& whole, const std::vector<HostTensor>& inputs, const RunPart& run) {
            return run_with_garbage_in_unnamed_slots(whole, inputs, run, {"source", "destination"});
          }};
}

}  // namespace ssmbench
