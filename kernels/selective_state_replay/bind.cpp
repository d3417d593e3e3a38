#include "kernels/selective_state_replay/bind.h"

#include "kernels/common/tensor_data.h"

namespace ssmbench {

StateReplayArgs bind_state_replay(const Problem& problem, const TensorSet& tensors) {
  check_contract(problem, tensors);
  const StateReplay replay(problem);
  const StateUpdate& step = replay.step;
  return {.batch = step.batch,
          .heads = step.heads,
          .headdim = step.headdim,
          .dstate = step.dstate,
          .groups = step.groups,
          .tokens = step.tokens,
          .window = replay.window,
          .dt_softplus = step.dt_softplus,
          .dt_is_f32 = step.dt_dtype == DType::f32,
          .state_dtype = step.state_dtype,
          .state = tensors.at("state").data,
          .ring_x = tensors.at("ring_x").data,
          .ring_B = tensors.at("ring_B").data,
          .ring_dt = static_cast<float*>(tensors.at("ring_dt").data),
          .start = static_cast<const std::int32_t*>(tensors.at("start").data),
          .count = static_cast<const std::int32_t*>(tensors.at("count").data),
          .source = data_of<const std::int32_t>(tensors, "source"),
          .x = tensors.at("x").data,
          .dt = tensors.at("dt").data,
          .A = static_cast<const float*>(tensors.at("A").data),
          .B = tensors.at("B").data,
          .C = tensors.at("C").data,
          .D = data_of<const float>(tensors, "D"),
          .z = data_of<const void>(tensors, "z"),
          .dt_bias = data_of<const float>(tensors, "dt_bias"),
          .out = tensors.at("out").data};
}

}  // namespace ssmbench
