#pragma once

#include <cstdint>
#include <stdexcept>

#include "model/tensor.h"

namespace ssmbench {

/// Calls `use` with a function (data, index) -> double that knows the dtype, so that loops do not switch on
/// it.
template <class Use>
void with_loader(DType dtype, const Use& use) {
  switch (dtype) {
    case DType::f32:
      return use([](const void* data, std::int64_t i) { return double{static_cast<const float*>(data)[i]}; });
    case DType::f16:
      return use([](const void* data, std::int64_t i) {
        return double{f16_to_float(static_cast<const std::uint16_t*>(data)[i])};
      });
    case DType::bf16:
      return use([](const void* data, std::int64_t i) {
        return double{bf16_to_float(static_cast<const std::uint16_t*>(data)[i])};
      });
    default:
      throw std::logic_error("the fp64 scan reads f32, f16 and bf16");
  }
}

}  // namespace ssmbench
