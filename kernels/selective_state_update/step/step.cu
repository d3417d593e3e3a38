// cuda-step: the kernels of one token.

#include "kernels/selective_state_update/step/instances.cuh"
#include "kernels/selective_state_update/step/kernel.cuh"

namespace ssmbench::step {
namespace {

struct StepKernels {
  static constexpr bool kSeveralTokens = false;
  template <class Io, class State, RowShape kShape, int kRows>
  static constexpr Kernel heads = step_heads<Io, State, kShape, kRows>;
  template <class Io, class State, RowShape kShape, int kRows>
  static constexpr Kernel channels = step_channels<Io, State, kShape, kRows>;
};

}  // namespace

Kernel step_kernel(DType io, DType state, bool rate_per_state, const StepPlan& plan) {
  return instance_of<StepKernels>(io, state, rate_per_state, plan);
}

}  // namespace ssmbench::step
