#pragma once

// Kernels that are compiled once for several io dtypes: what accesses memory looks at the dtype.

#include <cstdint>
#include <type_traits>

#include "kernels/common/io_types.cuh"
#include "model/dtype.h"

namespace ssmbench {

/// An element of a dtype of 16 bits, f16 or bf16.
struct Bits16 {
  std::uint16_t bits;
};

/// with_io_type for device code: kernels are compiled once for all io dtypes, and only what accesses memory
/// for each, or, where `joins` f16 and bf16, for elements of float and of Bits16.
template <bool joins, class Call>
__device__ void with_io(DType io, const Call& call) {
  if (io == DType::f32)
    call(std::type_identity<float>());
  else if constexpr (joins)
    call(std::type_identity<Bits16>());
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
/// Of a dtype of 16 bits.
__device__ inline unsigned short bits_of(float value, DType io) {
  return io == DType::f16 ? __half_as_ushort(from_float<__half>(value))
                          : __bfloat16_as_ushort(from_float<__nv_bfloat16>(value));
}
__device__ inline void store_element(void* element, float value, DType io) {
  if (io == DType::f32)
    *static_cast<float*>(element) = value;
  else
    *static_cast<unsigned short*>(element) = bits_of(value, io);
}

// What with_io() calls takes the dtype along, to look at Bits16.

template <class Io>
__device__ float to_float(Io element, DType /*io*/) {
  return to_float(element);
}
__device__ inline float to_float(Bits16 element, DType io) {
  return element_to_float(element.bits, io);
}
template <class Io>
__device__ void store_element(Io* element, float value, DType /*io*/) {
  *element = from_float<Io>(value);
}
__device__ inline void store_element(Bits16* element, float value, DType io) {
  element->bits = bits_of(value, io);
}

}  // namespace ssmbench
