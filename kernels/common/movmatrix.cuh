#pragma once

#include <cstdint>

namespace ssmbench {

/// An 8 × 8 matrix of 16-bit elements transposed, by the lanes of a warp. Lane (g, t) of common/mma.cuh has
/// elements 2t and 2t + 1 of row g, and gets rows 2t and 2t + 1 of column g.
__device__ inline std::uint32_t transposed(std::uint32_t two) {
  std::uint32_t result = 0;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;\n" : "=r"(result) : "r"(two));
  return result;
}

}  // namespace ssmbench
