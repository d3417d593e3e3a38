#include "model/selective_scan.h"

#include <fmt/format.h>

namespace ssmbench {
namespace {

/// The inputs, then out and last_state: what the forward operation has.
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
  const Shape state{scan.batch, scan.dim, scan.dstate};

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

  std::vector<TensorSpec> all{
      sequence("u", Role::input), sequence("delta", Role::input),
      scan.dense ? TensorSpec{"A", Role::input, state_dtype, matrix_per_channel, {0, 1, 2}, "dmn"}
                 : TensorSpec{"A", Role::input, state_dtype, per_channel_state, {0, 1}, "dn"},
      projection("B", scan.variable_b), projection("C", scan.variable_c)};
  if (scan.has_D) all.push_back(per_channel("D"));
  if (scan.has_z) all.push_back(sequence("z", Role::input));
  if (scan.has_delta_bias) all.push_back(per_channel("delta_bias"));
  if (scan.has_initial_state)
    all.push_back({"initial_state", Role::input, state_dtype, state, {0, 1, 2}, "bdn"});
  all.push_back(sequence("out", Role::output));
  all.push_back({"last_state", Role::output, state_dtype, state, {0, 1, 2}, "bdn"});
  return all;
}

/// The inputs of the forward operation and dout, then a gradient "d" + name for each input but dout, shaped
/// and stored as the input itself.
std::vector<TensorSpec> scan_bwd_tensors(const Problem& problem) {
  std::vector<TensorSpec> all;
  std::vector<TensorSpec> gradients;
  for (auto& tensor : scan_fwd_tensors(problem)) {
    if (tensor.role == Role::input) {
      gradients.push_back(tensor);
      gradients.back().name = "d" + tensor.name;
      gradients.back().role = Role::output;
      all.push_back(std::move(tensor));
    } else if (tensor.name == "out") {
      tensor.name = "dout";
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

std::vector<AxisSpec> scan_axes() {
  return {{"method", AxisKind::choice, "", method_names(), "zoh"},
          {"dtype", AxisKind::choice, "", {"f32", "f16", "bf16"}, {}},
          {"layout", AxisKind::choice, "", {"bdl", "bld"}, "bdl"},
          {"batch", AxisKind::size, "b", {}, {}},
          {"dim", AxisKind::size, "d", {}, {}},
          {"seqlen", AxisKind::size, "l", {}, {}},
          {"dstate", AxisKind::size, "n", {}, {}},
          {"groups", AxisKind::size, "g", {}, std::int64_t{1}},
          {"A", AxisKind::choice, "A", {"real", "complex", "dense"}, "real"},
          {"B", AxisKind::choice, "B", {"variable", "constant"}, "variable"},
          {"C", AxisKind::choice, "C", {"variable", "constant"}, "variable"},
          {"D", AxisKind::flag, "D", {}, true},
          {"z", AxisKind::flag, "z", {}, true},
          {"delta_bias", AxisKind::flag, "bias", {}, true},
          {"delta_softplus", AxisKind::flag, "softplus", {}, true},
          {"initial_state", AxisKind::flag, "init", {}, false}};
}

}  // namespace

const OpSpec& selective_scan_fwd() {
  static const OpSpec spec{"selective_scan_fwd", "Mamba-1 selective scan, forward", scan_axes(),
                           scan_fwd_tensors, scan_contradiction};
  return spec;
}

const OpSpec& selective_scan_bwd() {
  static const OpSpec spec{"selective_scan_bwd", "Mamba-1 selective scan, all gradients", scan_axes(),
                           scan_bwd_tensors, scan_contradiction};
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

}  // namespace ssmbench
