#include "kernels/ssd/args.h"

namespace ssmbench {
namespace {

/// Null where the tensor is absent.
template <class T>
T* data(const TensorSet& tensors, const char* name) {
  const TensorView* view = tensors.find(name);
  return view == nullptr ? nullptr : static_cast<T*>(view->data);
}

SsdInputs bind_inputs(const Problem& problem, const TensorSet& tensors) {
  check_contract(problem, tensors);
  const SsdChunkScan scan(problem);
  return {.batch = scan.batch,
          .seqlen = scan.seqlen,
          .nheads = scan.nheads,
          .headdim = scan.headdim,
          .dstate = scan.dstate,
          .groups = scan.groups,
          .heads_per_group = scan.heads_per_group(),
          .chunk_size = scan.chunk_size,
          .dt_softplus = scan.dt_softplus,
          .dt_low = static_cast<float>(scan.dt_low),
          .dt_high = static_cast<float>(scan.dt_high),
          .skip_per_headdim = scan.skip == SsdSkip::headdim,
          .x = data<const void>(tensors, "x"),
          .dt = data<const void>(tensors, "dt"),
          .A = data<const float>(tensors, "A"),
          .B = data<const void>(tensors, "B"),
          .C = data<const void>(tensors, "C"),
          .D = data<const float>(tensors, "D"),
          .z = data<const void>(tensors, "z"),
          .dt_bias = data<const float>(tensors, "dt_bias"),
          .initial_states = data<const float>(tensors, "initial_states"),
          .seq_idx = data<const std::int32_t>(tensors, "seq_idx")};
}

Work work_of(const Problem& problem, double fmas_per_update) {
  const SsdChunkScan scan(problem);
  const double steps =
      static_cast<double>(scan.batch) * static_cast<double>(scan.seqlen) * static_cast<double>(scan.nheads);
  double exponentials = steps * (scan.dt_softplus ? 3 : 1);
  if (scan.has_z) exponentials += steps * static_cast<double>(scan.headdim);
  return {
      .bytes = tensor_bytes(problem), .exponentials = exponentials, .fmas = fmas_per_update * scan.updates()};
}

}  // namespace

SsdArgs bind_ssd(const Problem& problem, const TensorSet& tensors) {
  return {.in = bind_inputs(problem, tensors),
          .out = data<void>(tensors, "out"),
          .final_states = data<float>(tensors, "final_states")};
}

SsdBwdArgs bind_ssd_bwd(const Problem& problem, const TensorSet& tensors) {
  return {.in = bind_inputs(problem, tensors),
          .dout = data<const void>(tensors, "dout"),
          .dfinal_states = data<const float>(tensors, "dfinal_states"),
          .dx = data<void>(tensors, "dx"),
          .ddt = data<void>(tensors, "ddt"),
          .dA = data<float>(tensors, "dA"),
          .dB = data<void>(tensors, "dB"),
          .dC = data<void>(tensors, "dC"),
          .dD = data<float>(tensors, "dD"),
          .dz = data<void>(tensors, "dz"),
          .ddt_bias = data<float>(tensors, "ddt_bias"),
          .dinitial_states = data<float>(tensors, "dinitial_states")};
}

Work ssd_work(const Problem& problem) {
  return work_of(problem, 3);
}

Work ssd_bwd_work(const Problem& problem) {
  return work_of(problem, problem.flag("z") ? 9 : 8);
}

}  // namespace ssmbench
