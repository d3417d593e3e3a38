#include "kernels/selective_state_update/bind.h"

#include "kernels/common/tensor_data.h"

namespace ssmbench {
StateUpdateArgs bind_state_update(const Problem& problem, const TensorSet& tensors) {
  check_contract(problem, tensors);
  const StateUpdate update(problem);
  return {.batch = update.batch,
          .heads = update.heads,
          .headdim = update.headdim,
          .dstate = update.dstate,
          .groups = update.groups,
          .tokens = update.tokens,
          .rate_per_state = update.rate_per_state,
          .dt_softplus = update.dt_softplus,
          .dt_is_f32 = update.dt_dtype == DType::f32,
          .state = tensors.at("state").data,
          .x = tensors.at("x").data,
          .dt = tensors.at("dt").data,
          .A = static_cast<const float*>(tensors.at("A").data),
          .B = tensors.at("B").data,
          .C = tensors.at("C").data,
          .D = data_of<const float>(tensors, "D"),
          .z = data_of<const void>(tensors, "z"),
          .dt_bias = data_of<const float>(tensors, "dt_bias"),
          .source = data_of<const std::int32_t>(tensors, "source"),
          .destination = data_of<const std::int32_t>(tensors, "destination"),
          .out = tensors.at("out").data,
          .intermediate = data_of<void>(tensors, "intermediate")};
}

StateStorage bind_state_storage(const Problem& problem, const TensorSet& tensors) {
  return {.dtype = StateUpdate(problem).state_dtype,
          .scale = data_of<float>(tensors, "state_scale"),
          .seed = data_of<const std::int64_t>(tensors, "seed")};
}

}  // namespace ssmbench
