#include "kernels/selective_scan/args.h"

#include <stdexcept>

#include "kernels/common/tensor_data.h"

namespace ssmbench {
namespace {

ProjectionStrides projection_strides(const TensorView& view, bool variable) {
  const auto& s = view.strides;
  if (variable) return {.batch = s[0], .group = s[1], .channel = 0, .state = s[2], .time = s[3]};
  return {.batch = 0, .group = 0, .channel = s[0], .state = s[1], .time = 0};
}

/// Multiply-adds per pair that a method's c and c' take beyond zoh's, with powers of Δ shared by the states
/// and 1/A known per state.
int extra_fmas(MethodId method) {
  switch (method) {
    case MethodId::zoh:
      return 0;
    case MethodId::highorder:
    case MethodId::trapezoidal:  // one more term, inside the bracket that the decay multiplies
      return 1;
    case MethodId::foh:  // (e^z − 1)·(1/A)
    case MethodId::poly:
      return 2;
    case MethodId::rk4:
    case MethodId::vim_foh:
    case MethodId::vim_poly:
    case MethodId::vim_highorder:
      return 3;
    case MethodId::bilinear:  // 1 ± z/2 and two products with the reciprocal of one of them
    case MethodId::bilinear_flipped:
      return 4;
    case MethodId::foh_exact:  // φ1 as foh, (φ1 − 1)·(1/z), φ1 − φ2, and one more term
      return 6;
  }
  throw std::logic_error("not a method");
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

std::optional<std::string> not_diagonal(const Problem& problem) {
  if (SelectiveScan(problem).dense) return "has diagonal A only";
  return {};
}

std::optional<std::string> not_real_zoh(const Problem& problem) {
  if (auto reason = not_diagonal(problem)) return reason;
  const SelectiveScan scan(problem);
  if (scan.complex) return "has real A only";
  if (scan.method != MethodId::zoh) return "has method zoh only";
  return {};
}

Work scan_work(const Problem& problem) {
  const SelectiveScan scan(problem);
  const double pairs = scan.pairs();
  if (scan.dense) {
    const auto states = static_cast<double>(scan.dstate);
    // A·h; foh: terms of a series, none where Δ·A is small; bilinear: elimination and what follows it.
    const double products = scan.method == MethodId::foh ? states : 2 * states + (states * states - 1) / 3;
    return {.bytes = tensor_bytes(problem), .exponentials = 0, .fmas = pairs * (products + 2)};  // Δ·u·B, C·h
  }
  // z, h and C·h. Complex: z 2, e^z 2, h 4, C·h 2; what a method adds has a real factor at least.
  const int extra = extra_fmas(scan.method);
  const int fmas = scan.complex ? 10 + 2 * extra : 3 + extra;
  return {
      .bytes = tensor_bytes(problem), .exponentials = pairs * (scan.complex ? 3 : 1), .fmas = pairs * fmas};
}

Work scan_gradients_work(const Problem& problem) {
  const Work forward = scan_work(problem);
  return {.bytes = forward.bytes, .exponentials = forward.exponentials, .fmas = 4 * forward.fmas};
}

}  // namespace ssmbench
