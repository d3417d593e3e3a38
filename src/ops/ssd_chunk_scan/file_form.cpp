#include "ops/ssd_chunk_scan/file_form.h"

#include <fmt/format.h>

#include <algorithm>

#include "inputs/packed_sequences.h"
#include "model/problem.h"
#include "ops/ssd_chunk_scan/ssd_chunk_scan.h"

namespace ssmbench {
namespace {

std::string skip_of(const StoredInputs& inputs) {
  if (!inputs.has("D")) return "none";
  const std::size_t rank = inputs.at("D").shape.size();
  if (rank != 1 && rank != 2)
    inputs.reject("D", fmt::format("expected 1 axis (per head) or 2 (per head dim), found {}", rank));
  return rank == 1 ? "head" : "headdim";
}

void infer_ssd(const StoredInputs& inputs, Axes& axes) {
  const Shape& x = inputs.shape("x", 4);
  const Shape& B = inputs.shape("B", 4);
  axes["batch"] = x[0];
  axes["seqlen"] = x[1];
  axes["nheads"] = x[2];
  axes["headdim"] = x[3];
  axes["groups"] = B[2];
  axes["dstate"] = B[3];
  axes["D"] = skip_of(inputs);
  for (const char* name : {"z", "dt_bias", "initial_states", "seq_idx"}) axes[name] = inputs.has(name);
}

/// What is not a dtype that states can have is left to the reader, which compares it with the fallback.
std::string state_dtype_of(const StoredInputs& inputs) {
  const AxisSpec& axis = *ssd_chunk_scan_fwd().find_axis("state_dtype");
  std::string fallback = to_string(*axis.fallback);
  if (!inputs.has("initial_states")) return fallback;
  const std::string& found = inputs.at("initial_states").dtype;
  return std::ranges::find(axis.choices, found) == axis.choices.end() ? fallback : found;
}

/// Any output may be missing from a file, so the problem is read as having final_states: they are judged
/// where they are.
void infer_forward(const StoredInputs& inputs, Axes& axes) {
  infer_ssd(inputs, axes);
  axes["cu_seqlens"] = inputs.has("cu_seqlens");
  axes["sequences"] = inputs.has("cu_seqlens") ? inputs.shape("cu_seqlens", 1)[0] - 1 : std::int64_t{1};
  axes["final_states"] = true;
  axes["state_dtype"] = state_dtype_of(inputs);
  axes["states_at"] = inputs.has("states_at") ? inputs.shape("states_at", 1)[0] : std::int64_t{0};
}

void infer_backward(const StoredInputs& inputs, Axes& axes) {
  infer_ssd(inputs, axes);
  axes["final_states"] = inputs.has("dfinal_states");
}

std::optional<std::string> wrong_stops(const HostTensor& input) {
  const auto* values = static_cast<const std::int32_t*>(input.buffer.data());
  for (std::int64_t k = 0; k < input.spec.shape[0]; ++k)
    if (values[k] < 0) return fmt::format("{} at (k {}): a step is at least 0", values[k], k);
  return {};
}

std::optional<std::string> wrong_values(const HostTensor& input) {
  if (input.spec.name == "cu_seqlens") return wrong_borders(input);
  if (input.spec.name == "states_at") return wrong_stops(input);
  if (input.spec.name != "seq_idx") return {};
  const auto* values = static_cast<const std::int32_t*>(input.buffer.data());
  const std::int64_t batch = input.spec.shape[0];
  const std::int64_t seqlen = input.spec.shape[1];
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int32_t* row = values + b * seqlen;
    if (row[0] != 0) return fmt::format("batch {} starts with {}, not with 0", b, row[0]);
    for (std::int64_t t = 1; t < seqlen; ++t)
      if (row[t] < row[t - 1])
        return fmt::format("batch {} decreases from {} to {} at step {}", b, row[t - 1], row[t], t);
  }
  return {};
}

FileForm file_form(void (*infer)(const StoredInputs& inputs, Axes& axes)) {
  return {.attributes = {"dtype", "chunk_size", "dt_softplus", "dt_limit"},
          .infer = infer,
          .has_chunk_states = true,
          .wrong_values = wrong_values};
}

}  // namespace

FileForm ssd_file_form() {
  return file_form(infer_forward);
}

FileForm ssd_bwd_file_form() {
  return file_form(infer_backward);
}

}  // namespace ssmbench
