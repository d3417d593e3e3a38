#include "kernels/selective_scan/args.h"

namespace ssmbench {
namespace {

ProjectionStrides projection_strides(const TensorView& view, bool variable) {
  const auto& s = view.strides;
  if (variable) return {.batch = s[0], .group = s[1], .channel = 0, .state = s[2], .time = s[3]};
  return {.batch = 0, .group = 0, .channel = s[0], .state = s[1], .time = 0};
}

template <class T>
T* optional_data(const TensorSet& tensors, const char* name) {
  const TensorView* view = tensors.find(name);
  return view == nullptr ? nullptr : static_cast<T*>(view->data);
}

}  // namespace

ScanArgs bind_scan(const Problem& problem, const TensorSet& tensors) {
  check_contract(problem, tensors);
  const SelectiveScan scan(problem);
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
          .z = optional_data<const void>(tensors, "z"),
          .A = static_cast<const float*>(tensors.at("A").data),
          .B = b.data,
          .C = c.data,
          .D = optional_data<const float>(tensors, "D"),
          .delta_bias = optional_data<const float>(tensors, "delta_bias"),
          .initial_state = optional_data<const float>(tensors, "initial_state"),
          .out = tensors.at("out").data,
          .last_state = static_cast<float*>(tensors.at("last_state").data),
          .sequence = {u.strides[0], u.strides[1], u.strides[2]},
          .b_strides = projection_strides(b, scan.variable_b),
          .c_strides = projection_strides(c, scan.variable_c)};
}

std::optional<std::string> not_real_zoh(const Problem& problem) {
  const SelectiveScan scan(problem);
  if (scan.complex) return "has real A only";
  if (scan.method != MethodId::zoh) return "has method zoh only";
  return {};
}

Work scan_work(const Problem& problem) {
  const double pairs = SelectiveScan(problem).pairs();
  return {.bytes = tensor_bytes(problem), .exponentials = pairs, .fmas = 3 * pairs};
}

}  // namespace ssmbench
