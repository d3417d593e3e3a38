#pragma once

// The states of a thread, to and from memory of any kind, and sums of them between threads. A state is a
// float or Complex.

#include <type_traits>

#include "kernels/common/complex.h"
#include "kernels/common/io_types.cuh"
#include "kernels/selective_scan/io_dtype.cuh"

namespace ssmbench {

/// Floats as values of states.
template <class Value>
__device__ const Value* values_of(const float* floats) {
  return reinterpret_cast<const Value*>(floats);
}

/// The type of variable B and C in memory: the io dtype, or c64 for complex states.
template <class Io, class Value>
using StoredProjection = std::conditional_t<std::is_same_v<Value, float>, Io, Value>;

/// B or C as a value of a state.
template <class Stored>
__device__ auto to_value(Stored stored, DType io) {
  if constexpr (std::is_same_v<Stored, Complex>)
    return stored;
  else
    return to_float(stored, io);
}

/// `count` states from memory[at] on, and zeros after these; all zeros where there is no memory.
template <class Value, int kStates>
__device__ void load_states(Value (&to)[kStates], const Value* memory, std::int64_t at, int count) {
#pragma unroll
  for (int s = 0; s < kStates; ++s) to[s] = memory != nullptr && s < count ? memory[at + s] : Value{};
}

__device__ inline float shuffle_xor(float value, int distance) {
  return __shfl_xor_sync(0xFFFFFFFFU, value, distance);
}
__device__ inline Complex shuffle_xor(Complex value, int distance) {
  return {shuffle_xor(value.re, distance), shuffle_xor(value.im, distance)};
}

}  // namespace ssmbench
