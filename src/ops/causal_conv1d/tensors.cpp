#include "ops/causal_conv1d/tensors.h"

#include <numeric>

#include "ops/causal_conv1d/causal_conv1d.h"

namespace ssmbench {
namespace {

TensorSpec in_c_order(const char* name, Role role, DType dtype, Shape shape, const char* axes) {
  std::vector<int> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  return {name, role, dtype, std::move(shape), std::move(order), axes};
}

/// (B, D, L), in either layout.
TensorSpec sequence(const Problem& problem, const char* name, Role role, bool channels_last) {
  const CausalConv1d conv(problem);
  const std::vector<int> order = channels_last ? std::vector{0, 2, 1} : std::vector{0, 1, 2};
  return {name, role, problem.dtype(), {conv.batch, conv.dim, conv.seqlen}, order, "bdl"};
}

TensorSpec states(const Problem& problem, const char* name, Role role) {
  const CausalConv1d conv(problem);
  return in_c_order(name, role, problem.dtype(), {conv.batch, conv.dim, conv.taps()}, "bdk");
}

void add_weights(const char* weight, const char* bias, Role role, DType dtype, const CausalConv1d& conv,
                 std::vector<TensorSpec>& all) {
  all.push_back(in_c_order(weight, role, dtype, {conv.dim, conv.width}, "dw"));
  if (conv.has_bias) all.push_back(in_c_order(bias, role, dtype, {conv.dim}, "d"));
}

std::vector<TensorSpec> inputs_of(const Problem& problem) {
  const CausalConv1d conv(problem);
  std::vector<TensorSpec> all{sequence(problem, "x", Role::input, conv.channels_last)};
  add_weights("weight", "bias", Role::input, conv.weight_is_f32 ? DType::f32 : problem.dtype(), conv, all);
  if (conv.has_initial_states) all.push_back(states(problem, "initial_states", Role::input));
  if (conv.has_seq_idx)
    all.push_back(in_c_order("seq_idx", Role::input, DType::i32, {conv.batch, conv.seqlen}, "bl"));
  return all;
}

}  // namespace

std::vector<TensorSpec> conv_fwd_tensors(const Problem& problem) {
  const CausalConv1d conv(problem);
  auto all = inputs_of(problem);
  all.push_back(sequence(problem, "out", Role::output, conv.channels_last));
  if (conv.has_final_states) all.push_back(states(problem, "final_states", Role::output));
  return all;
}

std::vector<TensorSpec> conv_bwd_tensors(const Problem& problem) {
  const CausalConv1d conv(problem);
  auto all = inputs_of(problem);
  all.push_back(sequence(problem, "dout", Role::input, conv.dout_channels_last));
  if (conv.has_final_states) all.push_back(states(problem, "dfinal_states", Role::input));
  all.push_back(sequence(problem, "dx", Role::output, conv.channels_last));
  add_weights("dweight", "dbias", Role::output, DType::f32, conv, all);
  if (conv.has_initial_states) all.push_back(states(problem, "dinitial_states", Role::output));
  return all;
}

std::vector<TensorSpec> conv_update_tensors(const Problem& problem) {
  const ConvUpdate update(problem);
  const DType io = problem.dtype();
  const DType weights = update.weight_is_f32 ? DType::f32 : io;
  const auto row = [&](const char* name, Role role) {
    if (update.tokens == 1) return in_c_order(name, role, io, {update.batch, update.dim}, "bd");
    return in_c_order(name, role, io, {update.batch, update.tokens, update.dim}, "btd");
  };
  TensorSpec state{"conv_state",
                   Role::input,
                   io,
                   {update.slots, update.dim, update.state_len},
                   update.channels_last ? std::vector{0, 2, 1} : std::vector{0, 1, 2},
                   update.has_indices() ? "sdk" : "bdk"};
  std::vector<TensorSpec> all{row("x", Role::input), state,
                              in_c_order("weight", Role::input, weights, {update.dim, update.width}, "dw")};
  if (update.has_bias) all.push_back(in_c_order("bias", Role::input, weights, {update.dim}, "d"));
  if (update.has_indices())
    for (const char* name : {"source", "destination"})
      all.push_back(in_c_order(name, Role::input, DType::i32, {update.batch}, "b"));
  all.push_back(row("out", Role::output));
  state.role = Role::output;
  all.push_back(std::move(state));
  return all;
}

}  // namespace ssmbench
