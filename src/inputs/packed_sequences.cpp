#include "inputs/packed_sequences.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/random.h"
#include "model/problem.h"
#include "model/tensor.h"
#include "model/tensor_map.h"

namespace ssmbench {
namespace {

constexpr const char* kRagged = "ragged";
constexpr const char* kEqual = "equal";
constexpr const char* kWithEmpty = "with-empty";

/// Index in a tensor of one sequence to that in the tensor of all, whose axes are `axes`.
IndexMap of_sequence(const std::string& axes, std::int64_t sequence, std::int64_t begin) {
  return [=](const Shape& here, Shape& there) {
    there = here;
    if (axes.front() == kSequenceLetter) there[0] += sequence;
    if (const auto time = axes.find(kTimeLetter); time != std::string::npos) there[time] += begin;
  };
}

Problem alone(const Problem& whole, std::int64_t steps) {
  Axes axes = whole.axes();
  for (const char* name : {"cu_seqlens", "sequences", "lengths"}) axes.erase(name);
  axes["seqlen"] = steps;
  return {whole.op(), axes};
}

/// Copies what `sequence` has of `before`, or zeros, to what it has of `after`.
void pass_on(const HostTensor* before, HostTensor& after, std::int64_t sequence) {
  const std::size_t bytes = after.spec.bytes() / static_cast<std::size_t>(after.spec.shape[0]);
  const std::size_t first = static_cast<std::size_t>(sequence) * bytes;
  auto* to = static_cast<std::byte*>(after.buffer.data()) + first;
  if (before == nullptr)
    std::memset(to, 0, bytes);
  else
    std::memcpy(to, static_cast<const std::byte*>(before->buffer.data()) + first, bytes);
}

}  // namespace

PackedSequences::PackedSequences(const Problem& problem)
    : packed(problem.has("cu_seqlens") && problem.flag("cu_seqlens")),
      count(problem.size(packed ? "sequences" : "batch")) {}

std::vector<AxisSpec> packing_axes() {
  return {{.name = "cu_seqlens", .kind = AxisKind::flag, .id_token = "varlen", .fallback = false},
          {.name = "sequences", .id_token = "m", .fallback = std::int64_t{1}},
          {.name = "lengths",
           .kind = AxisKind::choice,
           .choices = {kRagged, kEqual, kWithEmpty},
           .fallback = kRagged}};
}

std::optional<std::string> packing_contradiction(const Problem& problem) {
  if (problem.flag("cu_seqlens")) {
    if (problem.size("batch") == 1) return {};
    return fmt::format("batch {} with cu_seqlens, which packs sequences into a batch of 1",
                       problem.size("batch"));
  }
  if (problem.size("sequences") != 1)
    return fmt::format("sequences {} without cu_seqlens", problem.size("sequences"));
  if (problem.choice("lengths") != kRagged)
    return fmt::format("lengths {} without cu_seqlens", problem.choice("lengths"));
  return {};
}

std::vector<std::int64_t> draw_borders(std::int64_t seed, std::int64_t sequences, std::int64_t steps,
                                       const std::string& lengths) {
  std::vector<double> draws(static_cast<std::size_t>(sequences));
  Stream(seed, "cu_seqlens").uniforms(0, draws);
  std::vector<std::int64_t> borders;
  for (std::int64_t m = 0; m < sequences; ++m)
    borders.push_back(lengths == kEqual ? m * steps / sequences
                                        : static_cast<std::int64_t>(draws[m] * static_cast<double>(steps)));
  std::ranges::sort(borders);
  if (lengths != kEqual && sequences >= 3) {  // the first sequence has one step
    for (auto& border : borders) border = std::max<std::int64_t>(border, 1);
    borders[1] = 1;
  }
  if (lengths == kWithEmpty && sequences >= 2) borders[sequences / 2] = borders[sequences / 2 - 1];
  borders[0] = 0;
  borders.push_back(steps);
  if (lengths == kWithEmpty && sequences >= 2 && sequences / 2 == 1) borders[1] = 0;
  return borders;
}

std::optional<std::string> wrong_borders(const HostTensor& cu_seqlens) {
  const auto* values = static_cast<const std::int32_t*>(cu_seqlens.buffer.data());
  if (values[0] != 0) return fmt::format("starts with {}, not with 0", values[0]);
  for (std::int64_t m = 1; m < cu_seqlens.spec.shape[0]; ++m)
    if (values[m] < values[m - 1])
      return fmt::format("decreases from {} to {} at sequence {}", values[m - 1], values[m], m - 1);
  return {};
}

std::vector<HostTensor> run_each_alone(const Problem& whole, const std::vector<HostTensor>& inputs,
                                       const RunPart& run, const CarriedState& state) {
  const auto* borders = static_cast<const std::int32_t*>(find_tensor(inputs, "cu_seqlens")->buffer.data());
  std::vector<HostTensor> outputs = blank_outputs(whole);
  for (std::int64_t m = 0; m < whole.size("sequences"); ++m) {
    const std::int64_t begin = borders[m];
    if (borders[m + 1] == begin) {
      for (auto& output : outputs)
        if (output.spec.name == state.after) pass_on(find_tensor(inputs, state.before), output, m);
      continue;
    }
    const Problem sequence = alone(whole, borders[m + 1] - begin);
    std::vector<HostTensor> part;
    for (const auto& spec : sequence.tensors()) {
      if (spec.role != Role::input) continue;
      const HostTensor& from = *find_tensor(inputs, spec.name);
      part.push_back(gathered(spec, from, of_sequence(from.spec.axes, m, begin)));
    }
    const auto results = run(sequence, part);
    for (std::size_t i = 0; i < outputs.size(); ++i)
      scatter(results[i], outputs[i], of_sequence(outputs[i].spec.axes, m, begin));
  }
  return outputs;
}

}  // namespace ssmbench
