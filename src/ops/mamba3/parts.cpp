// Mamba-3's scans as decoding steps, as two halves, and as the sequences that are packed into them; its
// operations mirrored; SISO as MIMO.

#include "ops/mamba3/parts.h"

#include <algorithm>

#include "model/tensor_map.h"
#include "ops/mamba3/mamba3.h"

namespace ssmbench {
namespace {

constexpr const char* kStates[] = {"Angle_State", "SSM_State", "K_State", "V_State"};

bool is_state(const TensorSpec& spec) {
  return spec.name.find("_State") != std::string::npos;
}

/// As gathered(), for real tensors in C order of any two dtypes: V states are stored in several.
void convert(const HostTensor& from, HostTensor& into, const IndexMap& index_in_from) {
  Shape there;
  for (std::int64_t i = 0; i < element_count(into.spec.shape); ++i) {
    index_in_from(index_of(i, into.spec.shape), there);
    const double value =
        load_as_double(from.buffer.data(), offset_of(there, from.spec.strides()), from.spec.dtype);
    store_from_double(into.buffer.data(), i, into.spec.dtype, value);
  }
}

HostTensor converted(const TensorSpec& spec, const HostTensor& from, const IndexMap& index_in_from) {
  HostTensor tensor(spec);
  convert(from, tensor, index_in_from);
  return tensor;
}

/// Where the axis of time is; the rank of the tensor where it has none.
std::size_t time_of(const TensorSpec& spec) {
  return std::min(spec.axes.find(kTimeLetter), spec.shape.size());
}

Problem step_of(const Problem& whole) {
  Axes axes = whole.axes();
  const bool mimo = axes.contains("mimo_rank");
  for (const char* name :
       {"layout", "seqlen", "chunk_size", "initial_states", "final_states", "cu_seqlens", "sequences"})
    axes.erase(name);
  axes["form"] = mimo ? "mimo" : "siso";
  return {mamba3_step(), axes};
}

std::optional<std::string> not_in_steps(const Problem& whole) {
  if (whole.flag("cu_seqlens")) return "packed sequences have no step in common";
  return {};
}

/// The states before the first step: the whole's own, or zeros.
HostTensor state_before(const TensorSpec& spec, const std::vector<HostTensor>& inputs) {
  const HostTensor* given = find_tensor(inputs, "Input_" + spec.name);
  return given == nullptr ? zeros(spec) : converted(spec, *given, same_index);
}

std::vector<HostTensor> in_steps(const Problem& whole, const std::vector<HostTensor>& inputs,
                                 const RunPart& run) {
  const Problem step = step_of(whole);
  std::vector<HostTensor> outputs = blank_outputs(whole);
  std::vector<HostTensor> states;  // after the step before, out among them
  for (std::int64_t t = 0; t < whole.size("seqlen"); ++t) {
    std::vector<HostTensor> step_inputs;
    for (const auto& spec : step.tensors()) {
      if (spec.role != Role::input) continue;
      if (is_state(spec)) {
        step_inputs.push_back(t == 0 ? state_before(spec, inputs)
                                     : converted(spec, *find_tensor(states, spec.name), same_index));
        continue;
      }
      const HostTensor& from = *find_tensor(inputs, spec.name);
      const std::size_t time = time_of(from.spec);
      step_inputs.push_back(converted(spec, from, [&](const Shape& here, Shape& there) {
        there = here;
        if (time < from.spec.shape.size()) there.insert(there.begin() + static_cast<std::ptrdiff_t>(time), t);
      }));
    }
    states = run(step, step_inputs);
    scatter(states[0], outputs[0], [t](const Shape& here, Shape& there) {
      there = here;
      there.insert(there.begin() + 1, t);
    });
  }
  for (auto& output : outputs)
    if (is_state(output.spec)) convert(*find_tensor(states, output.spec.name.substr(6)), output, same_index);
  return outputs;
}

/// Steps from `start` of sequence `sequence` (of all, where it is 0), with the states of `states` if there are any.
std::vector<HostTensor> run_stretch(const Problem& stretch, const std::vector<HostTensor>& inputs,
                                    std::int64_t sequence, std::int64_t start,
                                    const std::vector<HostTensor>& states, const char* prefix,
                                    const RunPart& run) {
  std::vector<HostTensor> part;
  for (const auto& spec : stretch.tensors()) {
    if (spec.role != Role::input) continue;
    if (is_state(spec)) {
      part.push_back(converted(spec, *find_tensor(states, prefix + spec.name.substr(6)),
                               [&](const Shape& here, Shape& there) {
                                 there = here;
                                 there[0] += sequence;
                               }));
      continue;
    }
    const std::size_t time = time_of(spec);
    part.push_back(converted(spec, *find_tensor(inputs, spec.name), [&](const Shape& here, Shape& there) {
      there = here;
      if (time < here.size()) there[time] += start;
    }));
  }
  return run(stretch, part);
}

/// Its outputs where they belong.
void put_stretch(const std::vector<HostTensor>& results, std::int64_t sequence, std::int64_t start,
                 std::vector<HostTensor>& outputs) {
  for (auto& output : outputs) {
    const std::size_t axis = is_state(output.spec) ? 0 : 1;
    scatter(*find_tensor(results, output.spec.name), output, [&](const Shape& here, Shape& there) {
      there = here;
      there[axis] += axis == 0 ? sequence : start;
    });
  }
}

std::optional<std::string> no_halves(const Problem& whole) {
  if (whole.size("seqlen") < 2) return "one step has no halves";
  if (whole.flag("cu_seqlens")) return "packed sequences have halves of their own";
  return {};
}

std::vector<HostTensor> in_halves(const Problem& whole, const std::vector<HostTensor>& inputs,
                                  const RunPart& run) {
  const std::int64_t steps = whole.size("seqlen");
  const std::int64_t middle = steps / 2;
  std::vector<HostTensor> outputs = blank_outputs(whole);
  const auto first = run_stretch(whole.with({{"seqlen", middle}, {"final_states", true}}), inputs, 0, 0,
                                 inputs, "Input_", run);
  const auto second = run_stretch(whole.with({{"seqlen", steps - middle}, {"initial_states", true}}), inputs,
                                  0, middle, first, "Final_", run);
  for (auto& output : outputs)
    if (is_state(output.spec)) scatter(*find_tensor(second, output.spec.name), output, same_index);
  for (const auto* half : {&first, &second})
    scatter(*find_tensor(*half, "out"), outputs[0], [&](const Shape& here, Shape& there) {
      there = here;
      there[1] += half == &first ? 0 : middle;
    });
  return outputs;
}

std::optional<std::string> not_packed(const Problem& whole) {
  if (!whole.flag("cu_seqlens")) return "nothing is packed without cu_seqlens";
  return {};
}

/// The states of a sequence without steps: those that it starts from.
void pass_states(const Problem& whole, const std::vector<HostTensor>& inputs, std::int64_t sequence,
                 std::vector<HostTensor>& outputs) {
  if (!whole.flag("final_states")) return;
  for (const char* state : kStates) {
    HostTensor& output = *std::ranges::find(outputs, std::string("Final_") + state,
                                            [](const HostTensor& t) { return t.spec.name; });
    const HostTensor* given = find_tensor(inputs, std::string("Input_") + state);
    const std::int64_t each = element_count(output.spec.shape) / whole.size("sequences");
    for (std::int64_t i = sequence * each; i < (sequence + 1) * each; ++i)
      store_from_double(output.buffer.data(), i, output.spec.dtype,
                        given == nullptr ? 0 : load_as_double(given->buffer.data(), i, DType::f32));
  }
}

std::vector<HostTensor> in_sequences(const Problem& whole, const std::vector<HostTensor>& inputs,
                                     const RunPart& run) {
  const auto* borders = static_cast<const std::int32_t*>(find_tensor(inputs, "cu_seqlens")->buffer.data());
  std::vector<HostTensor> outputs = blank_outputs(whole);
  for (std::int64_t m = 0; m < whole.size("sequences"); ++m) {
    const std::int64_t start = borders[m];
    const std::int64_t steps = borders[m + 1] - start;
    if (steps == 0) {
      pass_states(whole, inputs, m, outputs);
      continue;
    }
    const Problem alone =
        whole.with({{"seqlen", steps}, {"cu_seqlens", false}, {"sequences", std::int64_t{1}}});
    put_stretch(run_stretch(alone, inputs, m, start, inputs, "Input_", run), m, start, outputs);
  }
  return outputs;
}

std::optional<std::string> always(const Problem& /*whole*/) {
  return {};
}

/// Whether elements of a tensor change sign, by their last index, where angles do: the tensor itself or its
/// gradient.
std::function<bool(std::int64_t)> sign_of_mirrored(const Problem& whole, const std::string& name) {
  const auto ends_with = [&](std::string_view end) { return name.ends_with(end); };
  if (ends_with("Angles") || ends_with("Angle_State")) return [](std::int64_t) { return true; };
  const Mamba3 scan(whole);
  std::vector<bool> is_second(scan.dstate);
  for (std::int64_t i = 0; i < scan.angles; ++i) is_second[scan.second_of_pair(i)] = true;
  for (const char* of_states : {"Q", "K", "Q_bias", "K_bias", "K_State", "SSM_State"})
    if (ends_with(of_states)) return [is_second](std::int64_t n) { return is_second[n]; };
  return [](std::int64_t) { return false; };
}

HostTensor mirrored_tensor(const Problem& whole, const HostTensor& from) {
  HostTensor tensor = gathered(from.spec, from, same_index);
  const auto changes = sign_of_mirrored(whole, from.spec.name);
  const DType dtype = from.spec.dtype;
  for (std::int64_t i = 0; i < element_count(from.spec.shape); ++i)
    if (changes(i % from.spec.shape.back()))
      store_from_double(tensor.buffer.data(), i, dtype, -load_as_double(from.buffer.data(), i, dtype));
  return tensor;
}

std::vector<HostTensor> mirrored(const Problem& whole, const std::vector<HostTensor>& inputs,
                                 const RunPart& run) {
  std::vector<HostTensor> others;
  for (const auto& input : inputs) others.push_back(mirrored_tensor(whole, input));
  std::vector<HostTensor> outputs;
  for (const auto& output : run(whole, others)) outputs.push_back(mirrored_tensor(whole, output));
  return outputs;
}

/// The same elements in the same order, with or without an axis of one rank.
HostTensor reshaped(const TensorSpec& spec, const HostTensor& from) {
  if (is_index(spec.dtype)) return gathered(spec, from, same_index);
  HostTensor tensor(spec);
  for (std::int64_t i = 0; i < element_count(spec.shape); ++i)
    store_from_double(tensor.buffer.data(), i, spec.dtype,
                      load_as_double(from.buffer.data(), i, from.spec.dtype));
  return tensor;
}

std::vector<HostTensor> with_one_rank(const Problem& whole, const std::vector<HostTensor>& inputs,
                                      const RunPart& run) {
  const bool forward = &whole.op() == &mamba3_siso_fwd();
  Axes axes = whole.axes();
  axes["mimo_rank"] = std::int64_t{1};
  const Problem ranked(forward ? mamba3_mimo_fwd() : mamba3_mimo_bwd(), axes);
  std::vector<HostTensor> others;
  for (const auto& spec : ranked.tensors()) {
    if (spec.role != Role::input) continue;
    if (const HostTensor* given = find_tensor(inputs, spec.name)) {
      others.push_back(reshaped(spec, *given));
      continue;
    }
    HostTensor& ones = others.emplace_back(spec);  // MIMO_V, MIMO_Z, MIMO_Out
    for (std::int64_t i = 0; i < element_count(spec.shape); ++i)
      store_from_double(ones.buffer.data(), i, spec.dtype, 1);
  }
  const std::vector<HostTensor> results = run(ranked, others);
  std::vector<HostTensor> outputs;
  for (const auto& output : blank_outputs(whole))
    outputs.push_back(reshaped(output.spec, *find_tensor(results, output.spec.name)));
  return outputs;
}

}  // namespace

PartwiseComputation mamba3_mirrored(const char* op) {
  return {.check = "mirrored",
          .parts_op = op,
          .summary = "an operation against itself with angles of the other sign and pairs mirrored",
          .inapplicable = always,
          .compute = mirrored};
}

PartwiseComputation mamba3_with_one_rank(const char* op) {
  return {.check = "one-rank",
          .parts_op = op,
          .summary = "SISO against MIMO of one rank",
          .inapplicable = always,
          .compute = with_one_rank};
}

PartwiseComputation mamba3_in_steps() {
  return {.check = "steps",
          .parts_op = "mamba3_step",
          .summary = "a scan against decoding steps, one after the other",
          .inapplicable = not_in_steps,
          .compute = in_steps};
}

PartwiseComputation mamba3_in_halves(const char* op) {
  return {.check = "halves",
          .parts_op = op,
          .summary = "a scan against two of half the length, the states carried from one to the other",
          .inapplicable = no_halves,
          .compute = in_halves};
}

PartwiseComputation mamba3_in_sequences(const char* op) {
  return {.check = "packed",
          .parts_op = op,
          .summary = "packed sequences against each on its own",
          .inapplicable = not_packed,
          .compute = in_sequences};
}

}  // namespace ssmbench
