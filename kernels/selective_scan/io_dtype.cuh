#pragma once

// Kernels that are compiled once for several io dtypes: what accesses memory looks at the dtype.

#include <cstdint>
#include <type_traits>

#include "kernels/common/io_types.cuh"
#include "model/dtype.h"

namespace ssmbench {

/// with_io_type for device code: kernels are compiled once for all io dtypes, and only what accesses memory
/// three times.
template <class Call>
__device__ void with_io(DType io, const Call& call) {
  if (io == DType::f32)
    call(std::type_identity<float>());
  else if (io == DType::f16)
    call(std::type_identity<__half>());
  else
    call(std::type_identity<__nv_bfloat16>());
}

// The same element by element, without branches: one load or store of two is predicated off.

/// Element `at` of a tensor.
__device__ inline const void* element_of(const void* tensor, std::int64_t at, DType io) {
  return static_cast<const char*>(tensor) + (at << (io == DType::f32 ? 2 : 1));
}
__device__ inline void* element_of(void* tensor, std::int64_t at, DType io) {
  return static_cast<char*>(tensor) + (at << (io == DType::f32 ? 2 : 1));
}
/// As it lies in memory.
__device__ inline std::uint32_t load_element(const void* element, DType io) {
  return io == DType::f32 ? *static_cast<const std::uint32_t*>(element)
                          : *static_cast<const std::uint16_t*>(element);
}
__device__ inline float element_to_float(std::uint32_t bits, DType io) {
  float value = __uint_as_float(bits << (io == DType::bf16 ? 16 : 0));
  if (io == DType::f16) value = __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
  return value;
}
__device__ inline void store_element(void* element, float value, DType io) {
  if (io == DType::f32)
    *static_cast<float*>(element) = value;
  else
    *static_cast<unsigned short*>(element) = io == DType::f16
                                                 ? __half_as_ushort(from_float<__half>(value))
                                                 : __bfloat16_as_ushort(from_float<__nv_bfloat16>(value));
}

}  // namespace ssmbench
