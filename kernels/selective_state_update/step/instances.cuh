#pragma once

// Which instance of the kernels of cuda-step a problem takes.

#include <type_traits>

#include "kernels/common/io_types.cuh"
#include "kernels/selective_state_update/args.h"
#include "kernels/selective_state_update/step/map.h"

namespace ssmbench::step {

using Kernel = void (*)(StateUpdateArgs, StepPlan, int heads_per_group);

/// One token (kernel.cuh), and several (tokens.cuh).
Kernel step_kernel(DType io, DType state, bool rate_per_state, const StepPlan& plan);
Kernel tokens_kernel(DType io, DType state, bool rate_per_state, const StepPlan& plan);

/// Form mamba1 where has_channel_tiles() (channel_tiles.cuh), states as those above.
Kernel channel_tiles_kernel(DType io, DType state, bool several_tokens);

/// Kernels that take io dtypes at run time (quantized.cuh): for i8, i16 and e4m3, for f16 that are rounded
/// stochastically, and for f16 and bf16 beside sequences that the kernels above have no instances for.
using QuantizedKernel = void (*)(StateUpdateArgs, StateStorage, StepPlan, DType io, int heads_per_group);
QuantizedKernel quantized_kernel(DType state, bool is_stochastic, const StepPlan& plan);

/// Several tokens by tensor cores (products.cuh): sequences in bf16 and has_products(), states in any dtype.
using ProductsKernel = void (*)(StateUpdateArgs, StateStorage, int heads_per_group, int run);
ProductsKernel products_kernel(DType state, bool is_stochastic, std::int64_t dstate);

/// One token of states of 8 bits where has_coded_heads() (coded_heads.cuh): sequences in bf16.
using CodedHeadsKernel = ProductsKernel;
CodedHeadsKernel coded_heads_kernel(DType state, bool is_stochastic, std::int64_t dstate);

/// Whether step_kernel and tokens_kernel have instances for states of that dtype: f32, that of the sequences,
/// and f16 beside bf16.
inline bool has_instances(DType io, DType state) {
  return state == DType::f32 || state == io || (state == DType::f16 && io == DType::bf16);
}

/// Kernels::heads<Io, State, shape, rows> or Kernels::channels<…> of a plan.
template <class Kernels, class Io, class State, RowShape kShape>
Kernel instance_of_shape(bool rate_per_state, int rows) {
  if (!rate_per_state) {
    constexpr int kMost = most_rows(kShape, sizeof(State), Kernels::kSeveralTokens);
    if (rows == 1) return Kernels::template heads<Io, State, kShape, 1>;
    if constexpr (kShape == RowShape::one_vector && !Kernels::kSeveralTokens) {  // as many lanes share a row
      if (rows == 2 && kMost > 2) return Kernels::template heads<Io, State, kShape, 2>;
      if (rows == 4 && kMost > 4) return Kernels::template heads<Io, State, kShape, 4>;
    }
    return Kernels::template heads<Io, State, kShape, kMost>;
  }
  if constexpr (kShape == RowShape::one_vector) {
    if (rows == kStepSequences) return Kernels::template channels<Io, State, kShape, kStepSequences>;
    if (rows == 2) return Kernels::template channels<Io, State, kShape, 2>;
  }
  return Kernels::template channels<Io, State, kShape, 1>;
}

template <class Kernels, class Io, class State>
Kernel instance_of_dtypes(bool rate_per_state, const StepPlan& plan) {
  if (plan.shape == RowShape::one_vector)
    return instance_of_shape<Kernels, Io, State, RowShape::one_vector>(rate_per_state, plan.rows);
  if constexpr (sizeof(State) == 4)
    if (plan.shape == RowShape::two_vectors)
      return instance_of_shape<Kernels, Io, State, RowShape::two_vectors>(rate_per_state, plan.rows);
  if constexpr (sizeof(State) < 4)
    if (plan.shape == RowShape::scalars)
      return instance_of_shape<Kernels, Io, State, RowShape::scalars>(rate_per_state, plan.rows);
  return instance_of_shape<Kernels, Io, State, RowShape::words>(rate_per_state, plan.rows);
}

template <class Kernels>
Kernel instance_of(DType io, DType state, bool rate_per_state, const StepPlan& plan) {
  return with_io_type(io, [&]<class Io>(std::type_identity<Io>) -> Kernel {
    if (state == DType::f32) return instance_of_dtypes<Kernels, Io, float>(rate_per_state, plan);
    if constexpr (std::is_same_v<Io, __nv_bfloat16>)
      if (state == DType::f16) return instance_of_dtypes<Kernels, Io, __half>(rate_per_state, plan);
    return instance_of_dtypes<Kernels, Io, Io>(rate_per_state, plan);
  });
}

}  // namespace ssmbench::step
