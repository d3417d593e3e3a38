#include "kernels/state_update/args.h"

namespace ssmbench {
namespace {

template <class T>
T* optional_data(const TensorSet& tensors, const char* name) {
  const TensorView* view = tensors.find(name);
  return view == nullptr ? nullptr : static_cast<T*>(view->data);
}

}  // namespace

StateUpdateArgs bind_state_update(const Problem& problem, const TensorSet& tensors) {
  check_contract(problem, tensors);
  const StateUpdate update(problem);
  return {.batch = update.batch,
          .heads = update.heads,
          .headdim = update.headdim,
          .dstate = update.dstate,
          .groups = update.groups,
          .rate_per_state = update.rate_per_state,
          .dt_softplus = update.dt_softplus,
          .state = static_cast<float*>(tensors.at("state").data),
          .x = tensors.at("x").data,
          .dt = tensors.at("dt").data,
          .A = static_cast<const float*>(tensors.at("A").data),
          .B = tensors.at("B").data,
          .C = tensors.at("C").data,
          .D = optional_data<const float>(tensors, "D"),
          .z = optional_data<const void>(tensors, "z"),
          .dt_bias = optional_data<const float>(tensors, "dt_bias"),
          .out = tensors.at("out").data};
}

Work state_update_work(const Problem& problem) {
  const StateUpdate update(problem);
  const double heads = static_cast<double>(update.batch) * static_cast<double>(update.heads);
  return {.bytes = tensor_bytes(problem),
          .exponentials = update.rate_per_state ? update.states() : heads,
          .fmas = 3 * update.states()};
}

}  // namespace ssmbench
