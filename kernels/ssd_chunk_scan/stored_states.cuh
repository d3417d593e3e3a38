#pragma once

// Elements of tensors of states, whose dtype is known at run time: it is the same for all threads, and they
// are read and written once a sequence.

#include <cstdint>

#include "kernels/common/io_types.cuh"
#include "model/dtype.h"

namespace ssmbench {

__device__ inline float load_state(const void* states, DType dtype, std::int64_t at) {
  if (dtype == DType::f16) return to_float(static_cast<const __half*>(states)[at]);
  if (dtype == DType::bf16) return to_float(static_cast<const __nv_bfloat16*>(states)[at]);
  return static_cast<const float*>(states)[at];
}
__device__ inline void store_state(void* states, DType dtype, std::int64_t at, float value) {
  if (dtype == DType::f16)
    static_cast<__half*>(states)[at] = from_float<__half>(value);
  else if (dtype == DType::bf16)
    static_cast<__nv_bfloat16*>(states)[at] = from_float<__nv_bfloat16>(value);
  else
    static_cast<float*>(states)[at] = value;
}

}  // namespace ssmbench
