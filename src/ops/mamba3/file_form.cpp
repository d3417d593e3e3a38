#include "ops/mamba3/file_form.h"

#include <fmt/format.h>

#include <algorithm>

#include "inputs/packed_sequences.h"

namespace ssmbench {
namespace {

/// Tensors that come together are taken to be there where one of them is, so that the other is missed.
bool has_any(const StoredInputs& inputs, std::initializer_list<const char*> names) {
  return std::ranges::any_of(names, [&](const char* name) { return inputs.has(name); });
}

void infer_options(const StoredInputs& inputs, Axes& axes) {
  axes["z"] = has_any(inputs, {"Z", "MIMO_Z"});
  axes["D"] = inputs.has("D");
}

void infer_ranks(const StoredInputs& inputs, std::int64_t rank, Axes& axes) {
  axes["mimo_rank"] = rank;
  axes["out_reduce"] = inputs.has("MIMO_Out");
}

/// What all scans have; the groups and states are the last axes of Q.
void infer_scan(const StoredInputs& inputs, std::size_t rank_of_Q, Axes& axes) {
  const Shape& Q = inputs.shape("Q", rank_of_Q);
  const Shape& V = inputs.shape("V", 4);
  axes["batch"] = V[0];
  axes["seqlen"] = V[1];
  axes["nheads"] = V[2];
  axes["headdim"] = V[3];
  axes["groups"] = Q[rank_of_Q - 2];
  axes["dstate"] = Q[rank_of_Q - 1];
  axes["rope_angles"] = inputs.shape("Angles", 4)[3];
  axes["initial_states"] =
      has_any(inputs, {"Input_Angle_State", "Input_SSM_State", "Input_K_State", "Input_V_State"});
  const bool more_states =
      inputs.has("Input_V_State") && inputs.shape("Input_V_State", 3)[0] != V[0];  // than batches
  axes["cu_seqlens"] = inputs.has("cu_seqlens") || more_states;
  axes["sequences"] =
      axes["cu_seqlens"] == AxisValue(true) ? inputs.shape("cu_seqlens", 1)[0] - 1 : std::int64_t{1};
  infer_options(inputs, axes);
}

/// Any output may be missing from a file, so the problem is read as having final states: they are judged
/// where they are.
void infer_siso_fwd(const StoredInputs& inputs, Axes& axes) {
  infer_scan(inputs, 4, axes);
  axes["final_states"] = true;
}

void infer_mimo_fwd(const StoredInputs& inputs, Axes& axes) {
  infer_scan(inputs, 5, axes);
  infer_ranks(inputs, inputs.at("Q").shape[2], axes);
  axes["final_states"] = true;
}

void infer_cotangents(const StoredInputs& inputs, Axes& axes) {
  axes["final_states"] =
      has_any(inputs, {"dFinal_Angle_State", "dFinal_SSM_State", "dFinal_K_State", "dFinal_V_State"});
}

void infer_siso_bwd(const StoredInputs& inputs, Axes& axes) {
  infer_scan(inputs, 4, axes);
  infer_cotangents(inputs, axes);
}

void infer_mimo_bwd(const StoredInputs& inputs, Axes& axes) {
  infer_scan(inputs, 5, axes);
  infer_ranks(inputs, inputs.at("Q").shape[2], axes);
  if (inputs.has("dout") && inputs.at("dout").shape.size() == 4)
    axes["out_reduce"] = true;  // it misses MIMO_Out
  infer_cotangents(inputs, axes);
}

/// Q has an axis of ranks, (B, R, G, N), in form mimo.
void infer_step(const StoredInputs& inputs, Axes& axes) {
  const Shape& Q = inputs.at("Q").shape;
  if (Q.size() != 3 && Q.size() != 4)
    inputs.reject("Q", fmt::format("expected 3 axes (siso) or 4 (mimo), found {}", Q.size()));
  const bool mimo = Q.size() == 4;
  const Shape& V = inputs.shape("V", 3);
  axes["form"] = mimo ? "mimo" : "siso";
  axes["batch"] = V[0];
  axes["nheads"] = V[1];
  axes["headdim"] = V[2];
  axes["groups"] = Q[Q.size() - 2];
  axes["dstate"] = Q.back();
  axes["rope_angles"] = inputs.shape("Angles", 3)[2];
  infer_options(inputs, axes);
  if (!mimo) return;
  infer_ranks(inputs, Q[1], axes);
  axes["outproj_norm"] = inputs.has("outproj_norm_weight");
}

std::optional<std::string> wrong_values(const HostTensor& input) {
  if (input.spec.name != "cu_seqlens") return {};
  return wrong_borders(input);
}

bool may_have_other_dtype(const TensorSpec& spec) {
  return spec.role == Role::output || spec.name.find("State") != std::string::npos;
}

FileForm file_form(std::vector<std::string> attributes,
                   void (*infer)(const StoredInputs& inputs, Axes& axes)) {
  attributes.insert(attributes.end(), {"dtype", "layout", "rotary_pairing", "angle_dtype"});
  return {.attributes = std::move(attributes),
          .infer = infer,
          .wrong_values = wrong_values,
          .may_have_other_dtype = may_have_other_dtype};
}

FileForm scan_form(std::vector<std::string> attributes,
                   void (*infer)(const StoredInputs& inputs, Axes& axes)) {
  attributes.emplace_back("chunk_size");
  FileForm form = file_form(std::move(attributes), infer);
  form.has_chunk_states = true;
  return form;
}

}  // namespace

FileForm mamba3_siso_fwd_file_form() {
  return scan_form({}, infer_siso_fwd);
}

FileForm mamba3_mimo_fwd_file_form() {
  return scan_form({"outproj_norm"}, infer_mimo_fwd);
}

FileForm mamba3_siso_bwd_file_form() {
  return scan_form({}, infer_siso_bwd);
}

FileForm mamba3_mimo_bwd_file_form() {
  return scan_form({"outproj_norm"}, infer_mimo_bwd);
}

FileForm mamba3_step_file_form() {
  return file_form({}, infer_step);
}

}  // namespace ssmbench
