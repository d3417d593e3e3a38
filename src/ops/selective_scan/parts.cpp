// A selective scan as decoding steps, as scans and the steps after them, as two halves, and as the sequences that
// are packed into it.

#include "ops/selective_scan/parts.h"

#include "inputs/packed_sequences.h"
#include "model/problem.h"
#include "model/tensor_map.h"
#include "ops/selective_scan/selective_scan.h"
#include "ops/selective_scan/x.h"
#include "ops/selective_state_update/selective_state_update.h"

namespace ssmbench {
namespace {

/// Logical axis of time; nothing for tensors without one.
std::optional<std::size_t> time_axis(const std::string& tensor, const Problem& scan) {
  if (tensor == "u" || tensor == "delta" || tensor == "z" || tensor == "out") return 2;
  if ((tensor == "B" || tensor == "C") && scan.choice(tensor) == "variable") return 3;
  return {};
}

/// "x" of a step is "u" of a scan, and so on.
std::string scan_name(const std::string& step_tensor) {
  if (step_tensor == "x") return "u";
  if (step_tensor == "dt") return "delta";
  if (step_tensor == "dt_bias") return "delta_bias";
  if (step_tensor == "state") return "initial_state";
  return step_tensor;
}

std::optional<std::string> not_a_scan_of_steps(const Problem& whole) {
  const SelectiveScan scan(whole);
  if (PackedSequences(whole).packed) return "packed sequences have no step in common";
  if (has_x(whole)) return "a decoding step leaves no x";
  if (scan.complex) return "a decoding step has real A only";
  if (scan.method != MethodId::zoh) return "a decoding step has method zoh only";
  if (!scan.variable_b || !scan.variable_c)
    return "a decoding step takes B and C of the step, not constant ones";
  return {};
}

Problem step_of(const Problem& whole) {
  const Axes axes = whole.axes();
  return {selective_state_update(),
          {{"form", "mamba1"},
           {"dtype", axes.at("dtype")},
           {"batch", axes.at("batch")},
           {"dim", axes.at("dim")},
           {"dstate", axes.at("dstate")},
           {"groups", axes.at("groups")},
           {"D", axes.at("D")},
           {"z", axes.at("z")},
           {"dt_bias", axes.at("delta_bias")},
           {"dt_softplus", axes.at("delta_softplus")}}};
}

/// An input of the step at time t, from that of the scan. B and C of a single group have no axis of groups.
HostTensor at_time(const TensorSpec& spec, const HostTensor& from, const Problem& whole, std::int64_t t) {
  if (!time_axis(from.spec.name, whole)) return gathered(spec, from, same_index);
  return gathered(spec, from, [&](const Shape& here, Shape& there) {
    there.front() = here.front();
    for (std::size_t axis = 1; axis < here.size(); ++axis)
      there[there.size() - 1 - axis] = here[here.size() - axis];
    there.back() = t;
  });
}

/// Step t of the scan as a decoding step from `state`; null: from initial_state, or zeros. Returns out and the
/// state after it.
std::vector<HostTensor> decode(const Problem& whole, const std::vector<HostTensor>& inputs, std::int64_t t,
                               const HostTensor* state, const RunPart& run) {
  const Problem step = step_of(whole);
  if (state == nullptr) state = find_tensor(inputs, "initial_state");
  std::vector<HostTensor> step_inputs;
  for (const auto& spec : step.tensors()) {
    if (spec.role != Role::input) continue;
    const HostTensor* from = spec.name == "state" ? state : find_tensor(inputs, scan_name(spec.name));
    step_inputs.push_back(from == nullptr ? zeros(spec) : at_time(spec, *from, whole, t));
  }
  return run(step, step_inputs);
}

void put_step(const HostTensor& from, std::int64_t t, HostTensor& out) {
  scatter(from, out, [t](const Shape& here, Shape& there) { there = {here[0], here[1], t}; });
}

std::vector<HostTensor> in_steps(const Problem& whole, const std::vector<HostTensor>& inputs,
                                 const RunPart& run) {
  std::vector<HostTensor> outputs = blank_outputs(whole);
  std::vector<HostTensor> results;
  for (std::int64_t t = 0; t < whole.size("seqlen"); ++t) {
    results = decode(whole, inputs, t, t > 0 ? &results[1] : nullptr, run);
    put_step(results[0], t, outputs[0]);
  }
  scatter(results[1], outputs[1], same_index);
  return outputs;
}

std::optional<std::string> not_in_halves(const Problem& whole) {
  const SelectiveScan scan(whole);
  if (PackedSequences(whole).packed) return "packed sequences have halves of their own";
  if (scan.seqlen < 2) return "one step has no halves";
  if (has_x(whole)) return "the halves of x need not be those of a scan";
  if (scan.method == MethodId::foh_exact || scan.method == MethodId::trapezoidal)
    return "a method of two samples needs the last input beside the state, and the state alone is carried";
  return {};
}

std::vector<HostTensor> run_half(const Problem& half, const std::vector<HostTensor>& inputs,
                                 std::int64_t start, std::optional<HostTensor> state, const RunPart& run) {
  std::vector<HostTensor> half_inputs;
  for (const auto& spec : half.tensors()) {
    if (spec.role != Role::input) continue;
    if (spec.name == "initial_state" && state) {
      half_inputs.push_back(gathered(spec, *state, same_index));
      continue;
    }
    const auto axis = time_axis(spec.name, half);
    half_inputs.push_back(
        gathered(spec, *find_tensor(inputs, spec.name), [&](const Shape& here, Shape& there) {
          there = here;
          if (axis) there[*axis] += start;
        }));
  }
  return run(half, half_inputs);
}

std::vector<HostTensor> in_halves(const Problem& whole, const std::vector<HostTensor>& inputs,
                                  const RunPart& run) {
  const std::int64_t steps = whole.size("seqlen");
  const std::int64_t middle = steps / 2;
  auto first = run_half(whole.with({{"seqlen", middle}}), inputs, 0, {}, run);
  const auto second = run_half(whole.with({{"seqlen", steps - middle}, {"initial_state", true}}), inputs,
                               middle, std::move(first[1]), run);
  std::vector<HostTensor> outputs = blank_outputs(whole);
  scatter(first[0], outputs[0], same_index);
  scatter(second[0], outputs[0], [&](const Shape& here, Shape& there) {
    there = here;
    there[2] += middle;
  });
  scatter(second[1], outputs[1], same_index);
  return outputs;
}

/// Each step is decoded from what a scan of the steps before it leaves.
std::vector<HostTensor> in_prefills(const Problem& whole, const std::vector<HostTensor>& inputs,
                                    const RunPart& run) {
  std::vector<HostTensor> outputs = blank_outputs(whole);
  std::vector<HostTensor> results;
  for (std::int64_t t = 0; t < whole.size("seqlen"); ++t) {
    if (t > 0) results = run_half(whole.with({{"seqlen", t}}), inputs, 0, {}, run);
    results = decode(whole, inputs, t, t > 0 ? &results[1] : nullptr, run);
    put_step(results[0], t, outputs[0]);
  }
  scatter(results[1], outputs[1], same_index);
  return outputs;
}

std::optional<std::string> not_packed(const Problem& whole) {
  if (!PackedSequences(whole).packed) return "nothing is packed without cu_seqlens";
  return {};
}

std::vector<HostTensor> in_sequences(const Problem& whole, const std::vector<HostTensor>& inputs,
                                     const RunPart& run) {
  return run_each_alone(whole, inputs, run, {.before = "initial_state", .after = "last_state"});
}

}  // namespace

PartwiseComputation scan_in_steps() {
  return {.check = "steps",
          .parts_op = "selective_state_update",
          .summary = "a scan against decoding steps, one after the other",
          .inapplicable = not_a_scan_of_steps,
          .compute = in_steps};
}

PartwiseComputation scan_in_halves() {
  return {.check = "halves",
          .parts_op = "selective_scan_fwd",
          .summary = "a scan against two of half the length, the state carried from one to the other",
          .inapplicable = not_in_halves,
          .compute = in_halves};
}

PartwiseComputation scan_then_steps() {
  return {.check = "prefill",
          .parts_op = "selective_state_update",
          .summary = "a scan against scans of every length and the decoding step after each",
          .inapplicable = not_a_scan_of_steps,
          .compute = in_prefills};
}

PartwiseComputation scan_in_sequences() {
  return {.check = "packed",
          .parts_op = "selective_scan_fwd",
          .summary = "packed sequences against each on its own",
          .inapplicable = not_packed,
          .compute = in_sequences};
}

}  // namespace ssmbench
