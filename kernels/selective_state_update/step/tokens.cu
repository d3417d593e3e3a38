// cuda-step: the kernels of several tokens.

#include "kernels/selective_state_update/step/instances.cuh"
#include "kernels/selective_state_update/step/tokens.cuh"

namespace ssmbench::step {
namespace {

struct TokensKernels {
  static constexpr bool kSeveralTokens = true;
  template <class Io, class State, RowShape kShape, int kRows>
  static constexpr Kernel heads = tokens_heads<Io, State, kShape, kRows>;
  template <class Io, class State, RowShape kShape, int kRows>
  static constexpr Kernel channels = tokens_channels<Io, State, kShape, kRows>;
};

}  // namespace

Kernel tokens_kernel(DType io, DType state, bool rate_per_state, const StepPlan& plan) {
  return instance_of<TokensKernels>(io, state, rate_per_state, plan);
}

}  // namespace ssmbench::step
