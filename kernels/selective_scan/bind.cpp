#include "kernels/selective_scan/bind.h"

#include "kernels/common/tensor_data.h"
#include "model/method.h"

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
  return {};
}

}  // namespace ssmbench
