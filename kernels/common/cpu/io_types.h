#pragma once

#include <cstdint>

#include "model/dtype.h"

namespace ssmbench {

// The dtypes that sequences are stored in, as the CPU kernels' template argument: storage, and scalar
// conversion from and to the f32 that is computed in.

struct F32 {
  using Storage = float;
  static float load(float x) { return x; }
  static float store(float x) { return x; }
};
struct F16 {
  using Storage = std::uint16_t;
  static float load(std::uint16_t x) { return f16_to_float(x); }
  static std::uint16_t store(float x) { return float_to_f16(x); }
};
struct Bf16 {
  using Storage = std::uint16_t;
  static float load(std::uint16_t x) { return bf16_to_float(x); }
  static std::uint16_t store(float x) { return float_to_bf16(x); }
};

/// Calls function(F32{}), function(F16{}) or function(Bf16{}), whichever the dtype is.
template <class Function>
auto with_io_type(DType dtype, const Function& function) {
  switch (dtype) {
    case DType::f16:
      return function(F16{});
    case DType::bf16:
      return function(Bf16{});
    default:
      return function(F32{});
  }
}

}  // namespace ssmbench
