#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "base/logic_error.h"
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

/// Two 16-bit elements of a register, the first in the low half.
template <class Element>
__device__ std::uint32_t pack_pair(float first, float second);
template <>
__device__ inline std::uint32_t pack_pair<__nv_bfloat16>(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
template <>
__device__ inline std::uint32_t pack_pair<__half>(float first, float second) {
  const __half2 pair = __floats2half2_rn(first, second);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

/// bf16 by one instruction an element: it is the upper half of an f32.
template <class Element>
__device__ float2 unpack_pair(std::uint32_t bits);
template <>
__device__ inline float2 unpack_pair<__nv_bfloat16>(std::uint32_t bits) {
  return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xFFFF0000U));
}
template <>
__device__ inline float2 unpack_pair<__half>(std::uint32_t bits) {
  return __half22float2(*reinterpret_cast<const __half2*>(&bits));
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
      throw_logic_error("not an io dtype");
  }
}

}  // namespace ssmbench
