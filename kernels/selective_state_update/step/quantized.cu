// cuda-step: the kernels of quantized.cuh.

#include "kernels/selective_state_update/step/instances.cuh"
#include "kernels/selective_state_update/step/quantized.cuh"

namespace ssmbench::step {
namespace {

template <DType kState, bool kStochastic>
QuantizedKernel heads_kernel_of(int rows) {
  return rows == kStepQuantizedRows ? quantized_heads<kState, kStochastic, kStepQuantizedRows>
                                    : quantized_heads<kState, kStochastic, kStepFewQuantizedRows>;
}

template <DType kState>
QuantizedKernel kernel_of(bool is_stochastic, const StepPlan& plan) {
  if (plan.rows == 1)
    return plan.shape == RowShape::one_vector ? quantized_rows<kState, RowShape::one_vector>
           : plan.shape == RowShape::words    ? quantized_rows<kState, RowShape::words>
                                              : quantized_rows<kState, RowShape::scalars>;
  if constexpr (kHasRandom<kState>)
    if (is_stochastic) return heads_kernel_of<kState, true>(plan.rows);
  return heads_kernel_of<kState, false>(plan.rows);
}

}  // namespace

QuantizedKernel quantized_kernel(DType state, bool is_stochastic, const StepPlan& plan) {
  switch (state) {
    case DType::i8:
      return kernel_of<DType::i8>(is_stochastic, plan);
    case DType::i16:
      return kernel_of<DType::i16>(is_stochastic, plan);
    case DType::e4m3:
      return kernel_of<DType::e4m3>(is_stochastic, plan);
    case DType::f16:
      return kernel_of<DType::f16>(is_stochastic, plan);
    case DType::bf16:
      return kernel_of<DType::bf16>(is_stochastic, plan);
    default:
      throw_logic_error("not a quantized state");
  }
}

}  // namespace ssmbench::step
