// cuda-step: registration and launch. The picture is in kernel.cuh.

#include <string>

#include "base/errors.h"
#include "kernels/common/launch.cuh"
#include "kernels/selective_state_update/bind.h"
#include "kernels/selective_state_update/step/kernel.cuh"

namespace ssmbench::step {
namespace {

using Kernel = void (*)(StateUpdateArgs, StepPlan, unsigned heads_per_group);

template <class Io, class State, bool kRatePerState, RowShape kShape>
Kernel kernel_of(bool many) {
  return many ? step_kernel<Io, State, kRatePerState, kShape, true>
              : step_kernel<Io, State, kRatePerState, kShape, false>;
}

template <class Io, class State, bool kRatePerState>
Kernel kernel_of(const StepPlan& plan) {
  switch (plan.shape) {
    case RowShape::one_vector:
      return kernel_of<Io, State, kRatePerState, RowShape::one_vector>(plan.many);
    case RowShape::two_vectors:
      return kernel_of<Io, State, kRatePerState, RowShape::two_vectors>(plan.many);
    default:
      return kernel_of<Io, State, kRatePerState, RowShape::scalars>(plan.many);
  }
}

template <class Io, class State>
Kernel kernel_of(const StateUpdate& update, const StepPlan& plan) {
  return update.rate_per_state ? kernel_of<Io, State, true>(plan) : kernel_of<Io, State, false>(plan);
}

StepPlan plan_of(const StateUpdate& update) {
  return update.rate_per_state
             ? plan_step(update.batch * update.groups, update.heads_per_group(), update.dstate)
             : plan_step(update.batch * update.heads, update.headdim, update.dstate);
}

std::optional<std::string> unsupported(const Problem& problem) {
  const StateUpdate update(problem);
  if (update.state_dtype != DType::f32 && update.state_dtype != problem.dtype())
    return "supports states in f32 or in the dtype of the sequence, not " + problem.choice("state_dtype") +
           " with " + problem.choice("dtype");
  const StepPlan plan = plan_of(update);
  return grid_too_large({plan.sections, plan.blocks_per_section},
                        std::to_string(plan.warps * plan.rows_per_warp()) + " rows that share B and C");
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-step " + *reason);
  const StateUpdateArgs args = bind_state_update(problem, tensors);
  const StateUpdate update(problem);
  const StepPlan plan = plan_of(update);
  const Kernel kernel = with_io_type(problem.dtype(), [&]<class Io>(std::type_identity<Io>) {
    return update.state_dtype == DType::f32 ? kernel_of<Io, float>(update, plan)
                                            : kernel_of<Io, Io>(update, plan);
  });
  const auto heads_per_group = static_cast<unsigned>(args.heads / args.groups);
  const auto threads = static_cast<unsigned>(plan.threads());
  return launch_of(kernel, plan.blocks(), dim3(threads), 0, args, plan, heads_per_group);
}

const Registration registration{{.name = "cuda-step",
                                 .op = "selective_state_update",
                                 .device = DeviceKind::cuda,
                                 .summary = "one decoding step, both forms, the state through registers once",
                                 .unsupported = unsupported,
                                 .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
                                 .bind = bind}};

}  // namespace
}  // namespace ssmbench::step
