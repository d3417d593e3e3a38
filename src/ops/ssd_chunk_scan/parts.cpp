// Mamba-2's scan as decoding steps, as scans and the steps after them, as two halves, as the sequences that are
// packed into it, and as Mamba-1's scan.

#include "ops/ssd_chunk_scan/parts.h"

#include <cstring>
#include <limits>

#include "inputs/packed_sequences.h"
#include "model/problem.h"
#include "model/tensor_map.h"
#include "ops/selective_scan/selective_scan.h"
#include "ops/selective_state_update/selective_state_update.h"
#include "ops/ssd_chunk_scan/sequences.h"
#include "ops/ssd_chunk_scan/ssd_chunk_scan.h"

namespace ssmbench {
namespace {

bool has_time(const std::string& tensor) {
  return tensor == "x" || tensor == "dt" || tensor == "z" || tensor == "B" || tensor == "C" ||
         tensor == "seq_idx" || tensor == "out";
}

bool is_clamped(const SsdChunkScan& scan) {
  return scan.dt_low > 0 || scan.dt_high < std::numeric_limits<double>::infinity();
}

/// Why states cannot be handed from one part to the next without being rounded.
std::optional<std::string> rounds_states(const Problem& whole) {
  const DType dtype = SsdSequences(whole).state_dtype;
  if (dtype == DType::f32) return {};
  return "parts round their states to " + std::string(name_of(dtype)) + " on the way";
}

std::optional<std::string> no_ssd_of_steps(const Problem& whole) {
  const SsdChunkScan scan(whole);
  if (auto reason = rounds_states(whole)) return reason;
  if (scan.has_seq_idx || SsdSequences(whole).packed)
    return "the state is reset on the way, which a decoding step knows nothing of";
  if (is_clamped(scan)) return "a decoding step has no dt_limit";
  if (scan.skip == SsdSkip::headdim) return "a decoding step has D per head only";
  return {};
}

Problem ssd_step_of(const Problem& whole) {
  const Axes axes = whole.axes();
  return {selective_state_update(),
          {{"form", "mamba2"},
           {"dtype", axes.at("dtype")},
           {"batch", axes.at("batch")},
           {"nheads", axes.at("nheads")},
           {"headdim", axes.at("headdim")},
           {"dstate", axes.at("dstate")},
           {"groups", axes.at("groups")},
           {"D", whole.choice("D") != "none"},
           {"z", axes.at("z")},
           {"dt_bias", axes.at("dt_bias")},
           {"dt_softplus", axes.at("dt_softplus")}}};
}

/// Index of a step's tensor to index at time t of the scan's: (b, …) to (b, t, …).
IndexMap at_time(std::int64_t t) {
  return [t](const Shape& here, Shape& there) {
    there = here;
    there.insert(there.begin() + 1, t);
  };
}

/// Step t of the scan as a decoding step from `state`; null: from initial_states, or zeros. Returns out and the
/// state after it.
std::vector<HostTensor> decode(const Problem& step, const std::vector<HostTensor>& inputs, std::int64_t t,
                               const HostTensor* state, const RunPart& run) {
  if (state == nullptr) state = find_tensor(inputs, "initial_states");
  std::vector<HostTensor> step_inputs;
  for (const auto& spec : step.tensors()) {
    if (spec.role != Role::input) continue;
    const HostTensor* from = spec.name == "state" ? state : find_tensor(inputs, spec.name);
    if (from == nullptr)
      step_inputs.push_back(zeros(spec));
    else
      step_inputs.push_back(gathered(spec, *from, has_time(spec.name) ? at_time(t) : same_index));
  }
  return run(step, step_inputs);
}

std::vector<HostTensor> in_ssd_steps(const Problem& whole, const std::vector<HostTensor>& inputs,
                                     const RunPart& run) {
  const Problem step = ssd_step_of(whole);
  std::vector<HostTensor> outputs = blank_outputs(whole);
  std::vector<HostTensor> results;
  for (std::int64_t t = 0; t < whole.size("seqlen"); ++t) {
    results = decode(step, inputs, t, t > 0 ? &results[1] : nullptr, run);
    scatter(results[0], outputs[0], at_time(t));
  }
  if (outputs.size() > 1) scatter(results[1], outputs[1], same_index);
  return outputs;
}

/// A stretch of the scan: batches from `batch`, steps from `start`. The state that enters, if any, is that of
/// `states` from the same batch on.
std::vector<HostTensor> run_stretch(const Problem& stretch, const std::vector<HostTensor>& inputs,
                                    std::int64_t batch, std::int64_t start, const HostTensor* states,
                                    const RunPart& run) {
  std::vector<HostTensor> part;
  for (const auto& spec : stretch.tensors()) {
    if (spec.role != Role::input) continue;
    const bool is_state = spec.name == "initial_states";
    const bool timed = has_time(spec.name);
    part.push_back(gathered(spec, is_state ? *states : *find_tensor(inputs, spec.name),
                            [&](const Shape& here, Shape& there) {
                              there = here;
                              if (timed || is_state) there[0] += batch;
                              if (timed) there[1] += start;
                            }));
  }
  return run(stretch, part);
}

void put_stretch(const std::vector<HostTensor>& results, std::int64_t batch, std::int64_t start,
                 std::vector<HostTensor>& outputs) {
  scatter(results[0], outputs[0], [&](const Shape& here, Shape& there) {
    there = here;
    there[0] += batch;
    there[1] += start;
  });
  if (outputs.size() > 1)
    scatter(results[1], outputs[1], [&](const Shape& here, Shape& there) {
      there = here;
      there[0] += batch;
    });
}

std::optional<std::string> no_ssd_in_halves(const Problem& whole) {
  const SsdChunkScan scan(whole);
  if (scan.seqlen < 2) return "one step has no halves";
  if (auto reason = rounds_states(whole)) return reason;
  if (SsdSequences(whole).packed) return "packed sequences have halves of their own";
  if (scan.has_seq_idx) return "a second half would start with a seq_idx above 0, which keeps the state out";
  return {};
}

std::vector<HostTensor> in_ssd_halves(const Problem& whole, const std::vector<HostTensor>& inputs,
                                      const RunPart& run) {
  const std::int64_t steps = whole.size("seqlen");
  const std::int64_t middle = steps / 2;
  std::vector<HostTensor> outputs = blank_outputs(whole);
  const auto first = run_stretch(whole.with({{"seqlen", middle}, {"final_states", true}}), inputs, 0, 0,
                                 find_tensor(inputs, "initial_states"), run);
  const auto second = run_stretch(whole.with({{"seqlen", steps - middle}, {"initial_states", true}}), inputs,
                                  0, middle, &first[1], run);
  put_stretch(first, 0, 0, outputs);
  put_stretch(second, 0, middle, outputs);
  return outputs;
}

/// Each step is decoded from what a scan of the steps before it leaves.
std::vector<HostTensor> in_ssd_prefills(const Problem& whole, const std::vector<HostTensor>& inputs,
                                        const RunPart& run) {
  const Problem step = ssd_step_of(whole);
  std::vector<HostTensor> outputs = blank_outputs(whole);
  std::vector<HostTensor> results;
  for (std::int64_t t = 0; t < whole.size("seqlen"); ++t) {
    if (t > 0)
      results = run_stretch(whole.with({{"seqlen", t}, {"final_states", true}}), inputs, 0, 0,
                            find_tensor(inputs, "initial_states"), run);
    results = decode(step, inputs, t, t > 0 ? &results[1] : nullptr, run);
    scatter(results[0], outputs[0], at_time(t));
  }
  if (outputs.size() > 1) scatter(results[1], outputs[1], same_index);
  return outputs;
}

std::optional<std::string> not_packed(const Problem& whole) {
  if (!SsdChunkScan(whole).has_seq_idx && !SsdSequences(whole).packed)
    return "nothing is packed without seq_idx or cu_seqlens";
  if (SsdSequences(whole).stops > 0) return "a sequence on its own has no states on the way";
  return {};
}

std::optional<std::string> no_stops(const Problem& whole) {
  if (SsdSequences(whole).stops == 0) return "there are no states on the way without states_at";
  return {};
}

/// The scan up to and with a step, whose sequence is then the last one.
std::vector<HostTensor> run_prefix(const Problem& whole, const std::vector<HostTensor>& inputs,
                                   std::int64_t step, std::int64_t sequence, const RunPart& run) {
  const Problem prefix = whole.with({{"seqlen", step + 1},
                                     {"sequences", sequence + 1},
                                     {"states_at", std::int64_t{0}},
                                     {"final_states", true}});
  std::vector<HostTensor> part;
  for (const auto& spec : prefix.tensors()) {
    if (spec.role != Role::input) continue;
    part.push_back(gathered(spec, *find_tensor(inputs, spec.name), same_index));
    if (spec.name == "cu_seqlens")
      static_cast<std::int32_t*>(part.back().buffer.data())[sequence + 1] =
          static_cast<std::int32_t>(step + 1);
  }
  return run(prefix, part);
}

std::vector<HostTensor> in_prefixes(const Problem& whole, const std::vector<HostTensor>& inputs,
                                    const RunPart& run) {
  const auto* stops = static_cast<const std::int32_t*>(find_tensor(inputs, "states_at")->buffer.data());
  const auto* borders = static_cast<const std::int32_t*>(find_tensor(inputs, "cu_seqlens")->buffer.data());
  const SsdSequences sequences(whole);
  std::vector<HostTensor> outputs = blank_outputs(whole);  // out, final_states, states
  const auto plain = run_prefix(whole, inputs, whole.size("seqlen") - 1, sequences.count - 1, run);
  for (std::size_t i = 0; i + 1 < outputs.size(); ++i) scatter(plain[i], outputs[i], same_index);
  for (std::int64_t k = 0; k < sequences.stops; ++k) {
    std::int64_t sequence = 0;
    while (borders[sequence + 1] <= stops[k]) ++sequence;
    const auto results = run_prefix(whole, inputs, stops[k], sequence, run);
    HostTensor& states = outputs.back();
    const std::size_t bytes = states.spec.bytes() / static_cast<std::size_t>(sequences.stops);
    std::memcpy(
        static_cast<std::byte*>(states.buffer.data()) + static_cast<std::size_t>(k) * bytes,
        static_cast<const std::byte*>(results[1].buffer.data()) + static_cast<std::size_t>(sequence) * bytes,
        bytes);
  }
  return outputs;
}

std::vector<HostTensor> in_sequences(const Problem& whole, const std::vector<HostTensor>& inputs,
                                     const RunPart& run) {
  if (SsdSequences(whole).packed)
    return run_each_alone(whole, inputs, run, {.before = "initial_states", .after = "final_states"});
  const SsdChunkScan scan(whole);
  const auto* seq_idx = static_cast<const std::int32_t*>(find_tensor(inputs, "seq_idx")->buffer.data());
  std::vector<HostTensor> outputs = blank_outputs(whole);
  for (std::int64_t b = 0; b < scan.batch; ++b) {
    const std::int32_t* of_step = seq_idx + b * scan.seqlen;
    for (std::int64_t start = 0; start < scan.seqlen;) {
      std::int64_t end = start;
      while (end < scan.seqlen && of_step[end] == of_step[start]) ++end;
      const bool continues = scan.has_initial_states && of_step[start] == 0;
      const Problem sequence = whole.with({{"batch", std::int64_t{1}},
                                           {"seqlen", end - start},
                                           {"seq_idx", false},
                                           {"initial_states", continues}});
      // The last sequence is the last to write its state.
      put_stretch(run_stretch(sequence, inputs, b, start, find_tensor(inputs, "initial_states"), run), b,
                  start, outputs);
      start = end;
    }
  }
  return outputs;
}

std::optional<std::string> not_a_scan(const Problem& whole) {
  const SsdChunkScan scan(whole);
  if (scan.has_seq_idx) return "Mamba-1's scan has no seq_idx";
  if (SsdSequences(whole).state_dtype != DType::f32) return "Mamba-1's scan has its states in f32";
  if (SsdSequences(whole).stops > 0) return "Mamba-1's scan has no states on the way";
  if (is_clamped(scan)) return "Mamba-1's scan has no dt_limit";
  return {};
}

Problem scan_of(const Problem& whole) {
  const Axes axes = whole.axes();
  return {selective_scan_fwd(),
          {{"dtype", axes.at("dtype")},
           {"layout", "bld"},
           {"batch", axes.at("batch")},
           {"dim", whole.size("nheads") * whole.size("headdim")},
           {"seqlen", axes.at("seqlen")},
           {"dstate", axes.at("dstate")},
           {"groups", axes.at("groups")},
           {"D", whole.choice("D") != "none"},
           {"z", axes.at("z")},
           {"delta_bias", axes.at("dt_bias")},
           {"delta_softplus", axes.at("dt_softplus")},
           {"initial_state", axes.at("initial_states")},
           {"cu_seqlens", axes.at("cu_seqlens")},
           {"sequences", axes.at("sequences")},
           {"lengths", axes.at("lengths")}}};
}

std::string ssd_name(const std::string& scan_tensor) {
  if (scan_tensor == "u") return "x";
  if (scan_tensor == "delta") return "dt";
  if (scan_tensor == "delta_bias") return "dt_bias";
  if (scan_tensor == "initial_state") return "initial_states";
  if (scan_tensor == "last_state") return "final_states";
  return scan_tensor;
}

/// Index of a tensor of Mamba-1's scan to that of Mamba-2's: channel d is (head, p) = (d / P, d % P).
IndexMap to_heads(const std::string& scan_tensor, std::size_t rank, std::int64_t headdim) {
  if (scan_tensor == "delta")
    return [=](const Shape& i, Shape& there) { there = {i[0], i[2], i[1] / headdim}; };
  if (scan_tensor == "B" || scan_tensor == "C")
    return [](const Shape& i, Shape& there) { there = {i[0], i[3], i[1], i[2]}; };
  if (scan_tensor == "initial_state" || scan_tensor == "last_state")
    return [=](const Shape& i, Shape& there) { there = {i[0], i[1] / headdim, i[1] % headdim, i[2]}; };
  if (scan_tensor == "D" && rank == 2)
    return [=](const Shape& i, Shape& there) { there = {i[0] / headdim, i[0] % headdim}; };
  if (scan_tensor == "cu_seqlens") return same_index;
  if (scan_tensor == "A" || scan_tensor == "D" || scan_tensor == "delta_bias")
    return [=](const Shape& i, Shape& there) { there = {i[0] / headdim}; };
  return [=](const Shape& i, Shape& there) { there = {i[0], i[2], i[1] / headdim, i[1] % headdim}; };
}

std::vector<HostTensor> as_scan(const Problem& whole, const std::vector<HostTensor>& inputs,
                                const RunPart& run) {
  const Problem scan = scan_of(whole);
  const std::int64_t headdim = whole.size("headdim");
  std::vector<HostTensor> scan_inputs;
  for (const auto& spec : scan.tensors()) {
    if (spec.role != Role::input) continue;
    const HostTensor& from = *find_tensor(inputs, ssd_name(spec.name));
    scan_inputs.push_back(gathered(spec, from, to_heads(spec.name, from.spec.shape.size(), headdim)));
  }
  const auto results = run(scan, scan_inputs);
  std::vector<HostTensor> outputs = blank_outputs(whole);
  for (std::size_t i = 0; i < outputs.size(); ++i)
    scatter(results[i], outputs[i], to_heads(results[i].spec.name, outputs[i].spec.shape.size(), headdim));
  return outputs;
}

}  // namespace

PartwiseComputation ssd_in_steps() {
  return {.check = "steps",
          .parts_op = "selective_state_update",
          .summary = "a scan against decoding steps, one after the other",
          .inapplicable = no_ssd_of_steps,
          .compute = in_ssd_steps};
}

PartwiseComputation ssd_then_steps() {
  return {.check = "prefill",
          .parts_op = "selective_state_update",
          .summary = "a scan against scans of every length and the decoding step after each",
          .inapplicable = no_ssd_of_steps,
          .compute = in_ssd_prefills};
}

PartwiseComputation ssd_in_halves() {
  return {.check = "halves",
          .parts_op = "ssd_chunk_scan_fwd",
          .summary = "a scan against two of half the length, the state carried from one to the other",
          .inapplicable = no_ssd_in_halves,
          .compute = in_ssd_halves};
}

PartwiseComputation ssd_in_sequences() {
  return {.check = "packed",
          .parts_op = "ssd_chunk_scan_fwd",
          .summary = "packed sequences against each on its own",
          .inapplicable = not_packed,
          .compute = in_sequences};
}

PartwiseComputation ssd_in_prefixes() {
  return {.check = "prefixes",
          .parts_op = "ssd_chunk_scan_fwd",
          .summary = "states on the way against the last states of scans that end there",
          .inapplicable = no_stops,
          .compute = in_prefixes};
}

PartwiseComputation ssd_as_scan() {
  return {.check = "mamba1",
          .parts_op = "selective_scan_fwd",
          .summary = "Mamba-2's scan against Mamba-1's with dt, A, D and dt_bias repeated over the head",
          .inapplicable = not_a_scan,
          .compute = as_scan};
}

}  // namespace ssmbench
