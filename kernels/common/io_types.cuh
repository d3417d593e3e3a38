#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <stdexcept>
#include <type_traits>

#include "model/dtype.h"

// The io dtypes as device types: exact on the way into f32, rounded once, to nearest even, on the way out.

namespace ssmbench {

__device__ inline float to_float(float x) {
  return x;
}
__device__ inline float to_float(__half x) {
  return __half2float(x);
}
__device__ inline float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}

template <class T>
__device__ T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline __half from_float<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

/// Calls `call` with std::type_identity of the device type of an io dtype, and returns what it returns.
template <class Call>
auto with_io_type(DType dtype, const Call& call) {
  switch (dtype) {
    case DType::f32:
      return call(std::type_identity<float>());
    case DType::f16:
      return call(std::type_identity<__half>());
    case DType::bf16:
      return call(std::type_identity<__nv_bfloat16>());
    default:
      throw std::logic_error("not an io dtype");
  }
}

}  // namespace ssmbench
