#include "kernels/ssd_chunk_scan/bind.h"

#include "kernels/common/tensor_data.h"
#include "ops/ssd_chunk_scan/sequences.h"

namespace ssmbench {
namespace {

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
          .state_dtype = SsdSequences(problem).state_dtype,
          .x = data_of<const void>(tensors, "x"),
          .dt = data_of<const void>(tensors, "dt"),
          .A = data_of<const float>(tensors, "A"),
          .B = data_of<const void>(tensors, "B"),
          .C = data_of<const void>(tensors, "C"),
          .D = data_of<const float>(tensors, "D"),
          .z = data_of<const void>(tensors, "z"),
          .dt_bias = data_of<const float>(tensors, "dt_bias"),
          .initial_states = data_of<const void>(tensors, "initial_states"),
          .seq_idx = data_of<const std::int32_t>(tensors, "seq_idx")};
}

}  // namespace

SsdArgs bind_ssd(const Problem& problem, const TensorSet& tensors) {
  return {.in = bind_inputs(problem, tensors),
          .out = data_of<void>(tensors, "out"),
          .final_states = data_of<void>(tensors, "final_states")};
}

SsdBwdArgs bind_ssd_bwd(const Problem& problem, const TensorSet& tensors) {
  return {.in = bind_inputs(problem, tensors),
          .dout = data_of<const void>(tensors, "dout"),
          .dfinal_states = data_of<const float>(tensors, "dfinal_states"),
          .dx = data_of<void>(tensors, "dx"),
          .ddt = data_of<void>(tensors, "ddt"),
          .dA = data_of<float>(tensors, "dA"),
          .dB = data_of<void>(tensors, "dB"),
          .dC = data_of<void>(tensors, "dC"),
          .dD = data_of<float>(tensors, "dD"),
          .dz = data_of<void>(tensors, "dz"),
          .ddt_bias = data_of<float>(tensors, "ddt_bias"),
          .dinitial_states = data_of<float>(tensors, "dinitial_states")};
}

}  // namespace ssmbench
