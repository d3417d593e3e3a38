#include "kernels/causal_conv1d/bind.h"

#include "kernels/common/tensor_data.h"

namespace ssmbench {
namespace {

ConvWeights weights_of(const TensorSet& tensors, bool are_f32) {
  return {
      .weight = tensors.at("weight").data, .bias = data_of<const void>(tensors, "bias"), .are_f32 = are_f32};
}

ConvInputs1d inputs_of(const Problem& problem, const TensorSet& tensors) {
  check_contract(problem, tensors);
  const CausalConv1d conv(problem);
  return {.batch = conv.batch,
          .dim = conv.dim,
          .seqlen = conv.seqlen,
          .width = static_cast<int>(conv.width),
          .silu = conv.silu,
          .channels_last = conv.channels_last,
          .x = tensors.at("x").data,
          .weights = weights_of(tensors, conv.weight_is_f32),
          .initial_states = data_of<const void>(tensors, "initial_states"),
          .seq_idx = data_of<const std::int32_t>(tensors, "seq_idx")};
}

}  // namespace

ConvForwardArgs bind_conv_fwd(const Problem& problem, const TensorSet& tensors) {
  return {.in = inputs_of(problem, tensors),
          .out = tensors.at("out").data,
          .final_states = data_of<void>(tensors, "final_states")};
}

ConvBackwardArgs bind_conv_bwd(const Problem& problem, const TensorSet& tensors) {
  return {.in = inputs_of(problem, tensors),
          .dout = tensors.at("dout").data,
          .dout_channels_last = CausalConv1d(problem).dout_channels_last,
          .dfinal_states = data_of<const void>(tensors, "dfinal_states"),
          .dx = tensors.at("dx").data,
          .dweight = static_cast<float*>(tensors.at("dweight").data),
          .dbias = data_of<float>(tensors, "dbias"),
          .dinitial_states = data_of<void>(tensors, "dinitial_states")};
}

ConvUpdateArgs bind_conv_update(const Problem& problem, const TensorSet& tensors) {
  check_contract(problem, tensors);
  const ConvUpdate update(problem);
  return {.batch = update.batch,
          .dim = update.dim,
          .tokens = update.tokens,
          .state_len = update.state_len,
          .slots = update.slots,
          .width = static_cast<int>(update.width),
          .silu = update.silu,
          .channels_last = update.channels_last,
          .x = tensors.at("x").data,
          .weights = weights_of(tensors, update.weight_is_f32),
          .source = data_of<const std::int32_t>(tensors, "source"),
          .destination = data_of<const std::int32_t>(tensors, "destination"),
          .conv_state = tensors.at("conv_state").data,
          .out = tensors.at("out").data};
}

}  // namespace ssmbench
