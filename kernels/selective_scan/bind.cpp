#include "kernels/selective_scan/bind.h"

#include "kernels/common/tensor_data.h"
#include "model/method.h"
#include "ops/selective_scan/x.h"

namespace ssmbench {
namespace {

ProjectionStrides projection_strides(const TensorView& view, bool variable) {
  const auto& s = view.strides;
  if (variable) return {.batch = s[0], .group = s[1], .channel = 0, .state = s[2], .time = s[3]};
  return {.batch = 0, .group = 0, .channel = s[0], .state = s[1], .time = 0};
}

/// All but the outputs.
ScanArgs resolve_inputs(const SelectiveScan& scan, const TensorSet& tensors) {
  const TensorView& u = tensors.at("u");
  const TensorView& b = tensors.at("B");
  const TensorView& c = tensors.at("C");
  return {.batch = scan.batch,
          .dim = scan.dim,
          .seqlen = scan.seqlen,
          .dstate = scan.dstate,
          .groups = scan.groups,
          .channels_per_group = scan.channels_per_group(),
          .delta_softplus = scan.delta_softplus,
          .variable_b = scan.variable_b,
          .variable_c = scan.variable_c,
          .u = u.data,
          .delta = tensors.at("delta").data,
          .z = data_of<const void>(tensors, "z"),
          .A = static_cast<const float*>(tensors.at("A").data),
          .B = b.data,
          .C = c.data,
          .D = data_of<const float>(tensors, "D"),
          .delta_bias = data_of<const float>(tensors, "delta_bias"),
          .initial_state = data_of<const float>(tensors, "initial_state"),
          .out = nullptr,
          .last_state = nullptr,
          .x = data_of<float>(tensors, "x"),
          .sequence = {u.strides[0], u.strides[1], u.strides[2]},
          .b_strides = projection_strides(b, scan.variable_b),
          .c_strides = projection_strides(c, scan.variable_c)};
}

}  // namespace

ScanArgs bind_scan(const Problem& problem, const TensorSet& tensors) {
  check_contract(problem, tensors);
  ScanArgs args = resolve_inputs(SelectiveScan(problem), tensors);
  args.out = tensors.at("out").data;
  args.last_state = static_cast<float*>(tensors.at("last_state").data);
  return args;
}

ScanGradientArgs bind_scan_gradients(const Problem& problem, const TensorSet& tensors) {
  check_contract(problem, tensors);
  return {.scan = resolve_inputs(SelectiveScan(problem), tensors),
          .dout = tensors.at("dout").data,
          .dlast_state = data_of<const float>(tensors, "dlast_state"),
          .du = tensors.at("du").data,
          .ddelta = tensors.at("ddelta").data,
          .dz = data_of<void>(tensors, "dz"),
          .dB = tensors.at("dB").data,
          .dC = tensors.at("dC").data,
          .dA = static_cast<float*>(tensors.at("dA").data),
          .dD = data_of<float>(tensors, "dD"),
          .ddelta_bias = data_of<float>(tensors, "ddelta_bias"),
          .dinitial_state = data_of<float>(tensors, "dinitial_state")};
}

// Plans of a million cases ask these several times of each: they look up no axis but their own.
std::optional<std::string> not_diagonal(const Problem& problem) {
  if (problem.choice("A") == "dense") return "has diagonal A only";
  return {};
}

std::optional<std::string> not_real_zoh(const Problem& problem) {
  if (auto reason = not_diagonal(problem)) return reason;
  if (problem.choice("A") == "complex") return "has real A only";
  if (method_named(problem.choice("method")).id != MethodId::zoh) return "has method zoh only";
  return has_no_x(problem);
}

std::optional<std::string> has_no_x(const Problem& problem) {
  if (has_x(problem)) return "has no x";
  return {};
}

std::optional<std::string> not_in_vectors_of_x(const Problem& problem) {
  const SelectiveScan scan(problem);
  const std::int64_t along = problem.choice("layout") == "bdl" ? scan.seqlen : scan.channels_per_group();
  if (scan.complex || scan.method != MethodId::zoh || !scan.variable_b || !scan.variable_c ||
      (scan.dstate != 8 && scan.dstate != 16) || along % 8 != 0)
    return "has x for real A, zoh, variable B and C, 8 or 16 states, and seqlen (bld: channels of a group) a "
           "multiple of 8";
  return {};
}

}  // namespace ssmbench
