#include "ops/causal_conv1d/parts.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "inputs/unnamed_slots.h"
#include "model/problem.h"
#include "model/tensor_map.h"
#include "ops/causal_conv1d/causal_conv1d.h"

namespace ssmbench {
namespace {

HostTensor copy_of(const TensorSpec& spec, const HostTensor& from) {
  return gathered(spec, from, same_index);
}

/// Steps start, start + 1, … of a tensor (B, D, L).
HostTensor stretch_of(const TensorSpec& spec, const HostTensor& from, std::int64_t start) {
  return gathered(spec, from, [start](const Shape& here, Shape& there) {
    there = {here[0], here[1], here[2] + start};
  });
}

void put_stretch(const HostTensor& from, std::int64_t start, HostTensor& into) {
  scatter(from, into, [start](const Shape& here, Shape& there) {
    there = {here[0], here[1], here[2] + start};
  });
}

std::optional<std::string> is_packed(const Problem& whole) {
  if (whole.flag("seq_idx")) return "packed sequences hand over no state";
  return {};
}

/// The steps from `start` on, after `state` where that is not null.
std::vector<HostTensor> run_stretch(const Problem& stretch, const std::vector<HostTensor>& inputs,
                                    std::int64_t start, const HostTensor* state, const RunPart& run) {
  std::vector<HostTensor> part;
  for (const auto& spec : stretch.tensors()) {
    if (spec.role != Role::input) continue;
    if (spec.name == "x")
      part.push_back(stretch_of(spec, *find_tensor(inputs, "x"), start));
    else if (spec.name == "initial_states")
      part.push_back(copy_of(spec, *state));
    else
      part.push_back(copy_of(spec, *find_tensor(inputs, spec.name)));
  }
  return run(stretch, part);
}

/// Stretches of `length` steps, the last one shorter, each after the state that the one before left.
std::vector<HostTensor> in_stretches(const Problem& whole, const std::vector<HostTensor>& inputs,
                                     std::int64_t length, const RunPart& run) {
  const std::int64_t steps = whole.size("seqlen");
  std::vector<HostTensor> outputs = blank_outputs(whole);
  std::vector<HostTensor> results;
  for (std::int64_t start = 0; start < steps; start += length) {
    const bool has_state = start > 0 || whole.flag("initial_states");
    const Problem stretch = whole.with(
        {{"seqlen", std::min(length, steps - start)}, {"initial_states", has_state}, {"final_states", true}});
    const HostTensor* state =
        start > 0 ? find_tensor(results, "final_states") : find_tensor(inputs, "initial_states");
    results = run_stretch(stretch, inputs, start, state, run);
    put_stretch(results[0], start, outputs[0]);
  }
  if (whole.flag("final_states")) scatter(results[1], outputs[1], same_index);
  return outputs;
}

std::optional<std::string> no_halves(const Problem& whole) {
  if (whole.size("seqlen") < 2) return "one step has no halves";
  return is_packed(whole);
}

std::vector<HostTensor> in_halves(const Problem& whole, const std::vector<HostTensor>& inputs,
                                  const RunPart& run) {
  return in_stretches(whole, inputs, (whole.size("seqlen") + 1) / 2, run);
}

std::vector<HostTensor> split_everywhere(const Problem& whole, const std::vector<HostTensor>& inputs,
                                         const RunPart& run) {
  return in_stretches(whole, inputs, 1, run);
}

Problem step_of(const Problem& whole) {
  const Axes axes = whole.axes();
  return {causal_conv1d_update(),
          {{"dtype", axes.at("dtype")},
           {"weight_dtype", axes.at("weight_dtype")},
           {"batch", axes.at("batch")},
           {"dim", axes.at("dim")},
           {"width", axes.at("width")},
           {"bias", axes.at("bias")},
           {"silu", axes.at("silu")},
           {"state_len", CausalConv1d(whole).taps()}}};
}

/// Step t as a decoding step from `state`; null: from initial_states, or zeros. Returns out and conv_state.
std::vector<HostTensor> decode(const Problem& step, const std::vector<HostTensor>& inputs, std::int64_t t,
                               const HostTensor* state, const RunPart& run) {
  if (state == nullptr) state = find_tensor(inputs, "initial_states");
  std::vector<HostTensor> part;
  for (const auto& spec : step.tensors()) {
    if (spec.role != Role::input) continue;
    if (spec.name == "x")
      part.push_back(gathered(spec, *find_tensor(inputs, "x"), [t](const Shape& here, Shape& there) {
        there = {here[0], here[1], t};
      }));
    else if (spec.name != "conv_state")
      part.push_back(copy_of(spec, *find_tensor(inputs, spec.name)));
    else
      part.push_back(state == nullptr ? zeros(spec) : copy_of(spec, *state));
  }
  return run(step, part);
}

void put_step(const HostTensor& from, std::int64_t t, HostTensor& out) {
  scatter(from, out, [t](const Shape& here, Shape& there) { there = {here[0], here[1], t}; });
}

std::vector<HostTensor> in_steps(const Problem& whole, const std::vector<HostTensor>& inputs,
                                 const RunPart& run) {
  const Problem step = step_of(whole);
  std::vector<HostTensor> outputs = blank_outputs(whole);
  std::vector<HostTensor> results;
  for (std::int64_t t = 0; t < whole.size("seqlen"); ++t) {
    results = decode(step, inputs, t, t > 0 ? &results[1] : nullptr, run);
    put_step(results[0], t, outputs[0]);
  }
  if (whole.flag("final_states")) scatter(results[1], outputs[1], same_index);
  return outputs;
}

/// Each step is decoded from what a convolution of the steps before it leaves.
std::vector<HostTensor> in_prefills(const Problem& whole, const std::vector<HostTensor>& inputs,
                                    const RunPart& run) {
  const Problem step = step_of(whole);
  std::vector<HostTensor> outputs = blank_outputs(whole);
  std::vector<HostTensor> results;
  for (std::int64_t t = 0; t < whole.size("seqlen"); ++t) {
    if (t > 0)
      results = run_stretch(whole.with({{"seqlen", t}, {"final_states", true}}), inputs, 0,
                            find_tensor(inputs, "initial_states"), run);
    results = decode(step, inputs, t, t > 0 ? &results[1] : nullptr, run);
    put_step(results[0], t, outputs[0]);
  }
  if (whole.flag("final_states")) scatter(results[1], outputs[1], same_index);
  return outputs;
}

std::optional<std::string> not_packed(const Problem& whole) {
  if (!whole.flag("seq_idx")) return "nothing is packed without seq_idx";
  return {};
}

/// Keeps the steps of sequence `number` and sets all others to zero.
void mask(HostTensor& x, const HostTensor& seq_idx, std::int32_t number) {
  const auto* numbers = static_cast<const std::int32_t*>(seq_idx.buffer.data());
  const Shape& shape = x.spec.shape;
  const Shape strides = x.spec.strides();
  const std::size_t size = size_of(x.spec.dtype);
  for (std::int64_t b = 0; b < shape[0]; ++b)
    for (std::int64_t d = 0; d < shape[1]; ++d)
      for (std::int64_t t = 0; t < shape[2]; ++t)
        if (numbers[b * shape[2] + t] != number)
          std::memset(static_cast<std::byte*>(x.buffer.data()) + offset_of({b, d, t}, strides) * size, 0,
                      size);
}

std::vector<HostTensor> in_sequences(const Problem& whole, const std::vector<HostTensor>& inputs,
                                     const RunPart& run) {
  const HostTensor& seq_idx = *find_tensor(inputs, "seq_idx");
  const auto* numbers = static_cast<const std::int32_t*>(seq_idx.buffer.data());
  const std::set<std::int32_t> all(numbers, numbers + element_count(seq_idx.spec.shape));
  const Problem alone = whole.with({{"seq_idx", false}});
  std::vector<HostTensor> outputs = blank_outputs(whole);
  HostTensor& out = outputs[0];
  std::memset(out.buffer.data(), 0, out.buffer.bytes());
  const std::size_t size = size_of(out.spec.dtype);
  const Shape strides = out.spec.strides();
  const std::int64_t steps = whole.size("seqlen");
  for (const std::int32_t number : all) {
    if (number < 0) continue;
    std::vector<HostTensor> part;
    for (const auto& spec : alone.tensors())
      if (spec.role == Role::input) part.push_back(copy_of(spec, *find_tensor(inputs, spec.name)));
    mask(part[0], seq_idx, number);
    const auto results = run(alone, part);
    for (std::int64_t i = 0; i < element_count(out.spec.shape); ++i) {
      const Shape index = index_of(i, out.spec.shape);
      if (numbers[index[0] * steps + index[2]] != number) continue;
      const std::int64_t offset = offset_of(index, strides) * static_cast<std::int64_t>(size);
      std::memcpy(static_cast<std::byte*>(out.buffer.data()) + offset,
                  static_cast<const std::byte*>(results[0].buffer.data()) + offset, size);
    }
  }
  return outputs;
}

std::optional<std::string> not_token_by_token(const Problem& whole) {
  if (whole.size("tokens") == 1) return "it is a single token";
  if (whole.choice("store") == "none") return "a state that is not stored reaches no later token";
  return {};
}

std::vector<HostTensor> token_by_token(const Problem& whole, const std::vector<HostTensor>& inputs,
                                       const RunPart& run) {
  const Problem single = whole.with({{"tokens", std::int64_t{1}}});
  std::vector<HostTensor> outputs = blank_outputs(whole);
  std::vector<HostTensor> results;  // out, conv_state
  for (std::int64_t t = 0; t < whole.size("tokens"); ++t) {
    std::vector<HostTensor> part;
    for (const auto& spec : single.tensors()) {
      if (spec.role != Role::input) continue;
      // From the second token on a row reads what it wrote.
      const bool is_source = spec.name == "source" && t > 0;
      const HostTensor& from = *find_tensor(inputs, is_source ? "destination" : spec.name);
      if (spec.name == "x")
        part.push_back(gathered(spec, from, [t](const Shape& here, Shape& there) {
          there = {here[0], t, here[1]};
        }));
      else
        part.push_back(copy_of(spec, spec.name == "conv_state" && t > 0 ? results[1] : from));
    }
    results = run(single, part);
    scatter(results[0], outputs[0], [t](const Shape& here, Shape& there) { there = {here[0], t, here[1]}; });
  }
  scatter(results[1], outputs[1], same_index);
  return outputs;
}

}  // namespace

PartwiseComputation conv_in_steps() {
  return {.check = "steps",
          .parts_op = "causal_conv1d_update",
          .summary = "a convolution against decoding steps, one after the other",
          .inapplicable = is_packed,
          .compute = in_steps};
}

PartwiseComputation conv_then_steps() {
  return {.check = "prefill",
          .parts_op = "causal_conv1d_update",
          .summary = "a convolution against convolutions of every length and the decoding step after each",
          .inapplicable = is_packed,
          .compute = in_prefills};
}

PartwiseComputation conv_in_halves() {
  return {.check = "halves",
          .parts_op = "causal_conv1d_fwd",
          .summary = "a convolution against two of half the length, the state handed over",
          .inapplicable = no_halves,
          .compute = in_halves};
}

PartwiseComputation conv_split_everywhere() {
  return {.check = "splits",
          .parts_op = "causal_conv1d_fwd",
          .summary = "a convolution against one for each step, the state handed over",
          .inapplicable = is_packed,
          .compute = split_everywhere};
}

PartwiseComputation conv_in_sequences() {
  return {.check = "packed",
          .parts_op = "causal_conv1d_fwd",
          .summary = "packed sequences against each on its own",
          .inapplicable = not_packed,
          .compute = in_sequences};
}

PartwiseComputation conv_token_by_token() {
  return {.check = "tokens",
          .parts_op = "causal_conv1d_update",
          .summary = "several tokens at once against one after the other",
          .inapplicable = not_token_by_token,
          .compute = token_by_token};
}

PartwiseComputation conv_in_slots() {
  return {.check = "slots",
          .parts_op = "causal_conv1d_update",
          .summary = "unused slots full of garbage: they keep it, and nothing else changes",
          .inapplicable = no_slots,
          .compute = [](const Problem& whole, const std::vector<HostTensor>& inputs, const RunPart& run) {
            return run_with_garbage_in_unnamed_slots(whole, inputs, run, {"source", "destination"});
          }};
}

}  // namespace ssmbench
