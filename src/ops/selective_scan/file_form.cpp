#include "ops/selective_scan/file_form.h"

#include <fmt/format.h>

#include "inputs/packed_sequences.h"

namespace ssmbench {
namespace {

/// B and C are (D, N) when constant; (B, G, N, L), or (B, L, G, N) in layout bld, when given per step.
bool is_variable(const StoredInputs& inputs, const std::string& name) {
  const std::size_t rank = inputs.at(name).shape.size();
  if (rank != 2 && rank != 4)
    inputs.reject(name, fmt::format("expected 2 axes (constant) or 4 (one value per step), found {}", rank));
  return rank == 4;
}

/// One matrix per channel is (D, N, N).
const char* kind_of_decay(const StoredInput& A) {
  if (A.shape.size() == 3) return "dense";
  return A.dtype == name_of(DType::c64) ? "complex" : "real";
}

void infer_scan(const StoredInputs& inputs, Axes& axes) {
  const bool time_last = axes.at("layout") == AxisValue("bdl");
  const Shape& u = inputs.shape("u", 3);
  axes["batch"] = u[0];
  axes["dim"] = u[time_last ? 1 : 2];
  axes["seqlen"] = u[time_last ? 2 : 1];
  axes["A"] = kind_of_decay(inputs.at("A"));
  axes["dstate"] = inputs.shape("A", axes["A"] == AxisValue("dense") ? 3 : 2)[1];
  axes["groups"] = std::int64_t{1};
  for (const char* name : {"C", "B"}) {
    const bool variable = is_variable(inputs, name);
    axes[name] = variable ? "variable" : "constant";
    if (variable) axes["groups"] = inputs.at(name).shape[time_last ? 1 : 2];
  }
  for (const char* name : {"D", "z", "delta_bias", "initial_state"}) axes[name] = inputs.has(name);
}

void infer_gradients(const StoredInputs& inputs, Axes& axes) {
  infer_scan(inputs, axes);
  axes["dlast_state"] = inputs.has("dlast_state");
  axes["x"] = inputs.has("x");
}

void infer_forward(const StoredInputs& inputs, Axes& axes) {
  infer_scan(inputs, axes);
  axes["cu_seqlens"] = inputs.has("cu_seqlens");
  if (inputs.has("cu_seqlens")) axes["sequences"] = inputs.shape("cu_seqlens", 1)[0] - 1;
}

std::optional<std::string> wrong_values(const HostTensor& input) {
  if (input.spec.name != "cu_seqlens") return {};
  return wrong_borders(input);
}

FileForm file_form(void (*infer)(const StoredInputs& inputs, Axes& axes)) {
  return {.attributes = {"method", "dtype", "layout", "delta_softplus"},
          .infer = infer,
          .wrong_values = wrong_values};
}

}  // namespace

FileForm scan_file_form() {
  FileForm form = file_form(infer_forward);
  form.repeated_attributes = {"x"};  // an output: no input shows it
  return form;
}

FileForm scan_bwd_file_form() {
  return file_form(infer_gradients);
}

}  // namespace ssmbench
