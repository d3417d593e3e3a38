#include "ops/selective_scan/selective_scan.h"

#include <fmt/format.h>

#include "inputs/packed_sequences.h"
#include "model/method.h"
#include "model/problem.h"
#include "ops/selective_scan/file_form.h"
#include "ops/selective_scan/inputs.h"
#include "ops/selective_scan/parts.h"
#include "ops/selective_scan/work.h"
#include "ops/selective_scan/x.h"

namespace ssmbench {
namespace {

constexpr std::size_t kMostTensors = 13;  // of a forward problem

/// The inputs, then out, last_state and x: what the forward operation has.
std::vector<TensorSpec> scan_fwd_tensors(const Problem& problem) {
  const SelectiveScan scan(problem);
  const DType io = problem.dtype();
  const DType state_dtype = scan.complex ? DType::c64 : DType::f32;
  const bool time_last = problem.choice("layout") == "bdl";
  const std::vector<int> storage_bdl = time_last ? std::vector{0, 1, 2} : std::vector{0, 2, 1};
  const std::vector<int> storage_bgnl = time_last ? std::vector{0, 1, 2, 3} : std::vector{0, 3, 1, 2};

  const Shape per_step{scan.batch, scan.dim, scan.seqlen};
  const Shape per_channel_state{scan.dim, scan.dstate};
  const Shape matrix_per_channel{scan.dim, scan.dstate, scan.dstate};
  const Shape per_group_step{scan.batch, scan.groups, scan.dstate, scan.seqlen};
  const PackedSequences sequences(problem);
  const Shape state{sequences.count, scan.dim, scan.dstate};
  const char* state_axes = sequences.packed ? "mdn" : "bdn";

  const auto sequence = [&](const char* name, Role role) {
    return TensorSpec{name, role, io, per_step, storage_bdl, "bdl"};
  };
  const auto projection = [&](const char* name, bool variable) {
    return variable ? TensorSpec{name,           Role::input,  scan.complex ? DType::c64 : io,
                                 per_group_step, storage_bgnl, "bgnl"}
                    : TensorSpec{name, Role::input, state_dtype, per_channel_state, {0, 1}, "dn"};
  };
  const auto per_channel = [&](const char* name) {
    return TensorSpec{name, Role::input, DType::f32, {scan.dim}, {0}, "d"};
  };

  std::vector<TensorSpec> all;
  all.reserve(kMostTensors);
  all.push_back(sequence("u", Role::input));
  all.push_back(sequence("delta", Role::input));
  if (scan.dense)
    all.push_back({"A", Role::input, state_dtype, matrix_per_channel, {0, 1, 2}, "dmn"});
  else
    all.push_back({"A", Role::input, state_dtype, per_channel_state, {0, 1}, "dn"});
  all.push_back(projection("B", scan.variable_b));
  all.push_back(projection("C", scan.variable_c));
  if (scan.has_D) all.push_back(per_channel("D"));
  if (scan.has_z) all.push_back(sequence("z", Role::input));
  if (scan.has_delta_bias) all.push_back(per_channel("delta_bias"));
  if (scan.has_initial_state)
    all.push_back({"initial_state", Role::input, state_dtype, state, {0, 1, 2}, state_axes});
  if (sequences.packed)
    all.push_back({"cu_seqlens", Role::input, DType::i32, {sequences.count + 1}, {0}, "c"});
  all.push_back(sequence("out", Role::output));
  all.push_back({"last_state", Role::output, state_dtype, state, {0, 1, 2}, state_axes});
  if (has_x(problem)) {
    const std::int64_t states = (scan.seqlen + kStepsOfX - 1) / kStepsOfX;
    all.push_back(
        {"x", Role::output, state_dtype, {scan.batch, states, scan.dim, scan.dstate}, {0, 1, 2, 3}, "bkdn"});
  }
  return all;
}

/// The inputs of the forward operation, dout and, where the problem has them, dlast_state and x; then a
/// gradient "d" + name for each input of the forward operation, shaped and stored as the input itself.
std::vector<TensorSpec> scan_bwd_tensors(const Problem& problem) {
  std::vector<TensorSpec> all;
  std::vector<TensorSpec> gradients;
  for (auto& tensor : scan_fwd_tensors(problem)) {
    if (tensor.role == Role::input) {
      gradients.push_back(tensor);
      gradients.back().name = "d" + tensor.name;
      gradients.back().role = Role::output;
      all.push_back(std::move(tensor));
    } else if (tensor.name == "x") {
      tensor.role = Role::input;
      all.push_back(std::move(tensor));
    } else if (tensor.name == "out" || problem.flag("dlast_state")) {
      tensor.name = "d" + tensor.name;
      tensor.role = Role::input;
      all.push_back(std::move(tensor));
    }
  }
  all.insert(all.end(), gradients.begin(), gradients.end());
  return all;
}

std::optional<std::string> dense_scan_contradiction(const Problem& problem, const SelectiveScan& scan) {
  if (problem.op().name != "selective_scan_fwd") return "A dense is forward only";
  if (scan.method != MethodId::bilinear && scan.method != MethodId::foh)
    return fmt::format("A dense has the methods bilinear and foh, not {}", problem.choice("method"));
  if (scan.dstate > kMaxDenseDState)
    return fmt::format("dstate {} is over the limit of {} for A dense", scan.dstate, kMaxDenseDState);
  if (has_x(problem)) return "A dense has no x";
  return {};
}

std::optional<std::string> scan_contradiction(const Problem& problem) {
  const SelectiveScan scan(problem);
  if (scan.dstate > kMaxDState)
    return fmt::format("dstate {} is over the limit of {}", scan.dstate, kMaxDState);
  if (scan.dim % scan.groups != 0)
    return fmt::format("dim {} is not a multiple of groups {}", scan.dim, scan.groups);
  if (scan.groups > 1 && !scan.variable_b && !scan.variable_c)
    return fmt::format("groups {} has no meaning when B and C are both constant", scan.groups);
  if (scan.dense) return dense_scan_contradiction(problem, scan);
  return {};
}

std::optional<std::string> scan_fwd_contradiction(const Problem& problem) {
  if (auto reason = packing_contradiction(problem)) return reason;
  if (has_x(problem) && PackedSequences(problem).packed) return "packed sequences have no x";
  return scan_contradiction(problem);
}

AxisSpec size(const char* name, const char* id_token, AxisRole role) {
  return {.name = name, .id_token = id_token, .role = role};
}

AxisSpec flag(const char* name, const char* id_token, bool fallback) {
  return {.name = name, .kind = AxisKind::flag, .id_token = id_token, .fallback = fallback};
}

AxisSpec choice(const char* name, std::vector<std::string> choices) {
  return {.name = name,
          .kind = AxisKind::choice,
          .id_token = name,
          .choices = choices,
          .fallback = choices.front()};
}

std::vector<AxisSpec> scan_axes() {
  return {
      {.name = "method",
       .kind = AxisKind::choice,
       .choices = method_names(),
       .fallback = "zoh",
       .role = AxisRole::method},
      {.name = "dtype", .kind = AxisKind::choice, .choices = {"f32", "f16", "bf16"}, .role = AxisRole::dtype},
      {.name = "layout",
       .kind = AxisKind::choice,
       .choices = {"bdl", "bld"},
       .fallback = "bdl",
       .role = AxisRole::layout,
       .changes_values = false},
      size("batch", "b", AxisRole::batch),
      {.name = "dim", .id_token = "d", .role = AxisRole::channel, .letter = 'd'},
      size("seqlen", "l", AxisRole::time),
      size("dstate", "n", AxisRole::none),
      {.name = "groups", .id_token = "g", .fallback = std::int64_t{1}, .role = AxisRole::groups},
      choice("A", {"real", "complex", "dense"}),
      choice("B", {"variable", "constant"}),
      choice("C", {"variable", "constant"}),
      flag("D", "D", true),
      flag("z", "z", true),
      flag("delta_bias", "bias", true),
      flag("delta_softplus", "softplus", true),
      flag("initial_state", "init", false),
      flag("x", "x", false)};
}

std::vector<AxisSpec> scan_fwd_axes() {
  std::vector<AxisSpec> axes = scan_axes();
  for (auto& axis : packing_axes()) axes.push_back(std::move(axis));
  return axes;
}

std::vector<AxisSpec> scan_bwd_axes() {
  std::vector<AxisSpec> axes = scan_axes();
  axes.push_back(flag("dlast_state", "dlast", false));
  return axes;
}

InputFill scan_inputs(const Problem& problem, const InputSpec& spec) {
  return fill_from(ScanInputs(problem, spec));
}

std::optional<std::string> unstable_method(const Problem& problem) {
  if (SelectiveScan(problem).method != MethodId::bilinear_flipped) return {};
  return "bilinear_flipped is unstable for A < 0 and has a pole at z = -2; states may overflow";
}

const OpRegistration forward_op(selective_scan_fwd());
const OpRegistration backward_op(selective_scan_bwd());

}  // namespace

const OpSpec& selective_scan_fwd() {
  static const OpSpec spec{
      .name = "selective_scan_fwd",
      .summary = "Mamba-1 selective scan, forward",
      .axes = scan_fwd_axes(),
      .tensors = scan_fwd_tensors,
      .contradiction = scan_fwd_contradiction,
      .inputs = scan_inputs,
      .least_work = scan_least_work,
      .file = scan_file_form(),
      .warning = unstable_method,
      .parts = {scan_in_steps(), scan_in_halves(), scan_then_steps(), scan_in_sequences()},
      .look_alikes = {{"B", "C"}}};
  return spec;
}

const OpSpec& selective_scan_bwd() {
  static const OpSpec spec{.name = "selective_scan_bwd",
                           .summary = "Mamba-1 selective scan, all gradients",
                           .axes = scan_bwd_axes(),
                           .tensors = scan_bwd_tensors,
                           .contradiction = scan_contradiction,
                           .inputs = scan_inputs,
                           .least_work = scan_bwd_least_work,
                           .file = scan_bwd_file_form(),
                           .warning = unstable_method,
                           .look_alikes = {{"B", "C"}}};
  return spec;
}

SelectiveScan::SelectiveScan(const Problem& problem)
    : batch(problem.size("batch")),
      dim(problem.size("dim")),
      seqlen(problem.size("seqlen")),
      dstate(problem.size("dstate")),
      groups(problem.size("groups")),
      method(method_named(problem.choice("method")).id),
      complex(problem.choice("A") == "complex"),
      dense(problem.choice("A") == "dense"),
      variable_b(problem.choice("B") == "variable"),
      variable_c(problem.choice("C") == "variable"),
      has_z(problem.flag("z")),
      has_D(problem.flag("D")),
      has_delta_bias(problem.flag("delta_bias")),
      has_initial_state(problem.flag("initial_state")),
      delta_softplus(problem.flag("delta_softplus")) {}

bool has_x(const Problem& scan) {
  return scan.flag("x");
}

}  // namespace ssmbench
