#pragma once

#include <cstdint>

#include "kernels/common/cpu/io_types.h"
#include "model/dtype.h"

// Elements of tensors whose dtype is looked at where they are, and not by templates: what the elements are needed
// for is then compiled once, not for each io dtype.

namespace ssmbench {

inline float load_element(const void* tensor, std::int64_t at, DType io) {
  if (io == DType::f32) return static_cast<const float*>(tensor)[at];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(tensor)[at];
  return io == DType::f16 ? F16::load(bits) : Bf16::load(bits);
}

inline void store_element(void* tensor, std::int64_t at, float value, DType io) {
  if (io == DType::f32)
    static_cast<float*>(tensor)[at] = value;
  else
    static_cast<std::uint16_t*>(tensor)[at] = io == DType::f16 ? F16::store(value) : Bf16::store(value);
}

}  // namespace ssmbench
