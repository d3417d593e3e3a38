#pragma once

// The smaller matrix products of operands in 16 bits, for what has eight elements along K.

#include <cstdint>

#include "kernels/common/mma.cuh"

namespace ssmbench {

/// d += a·b, operands bf16, accumulated in f32; K = 8: registers 0 and 1 of A, and 0 of B.
__device__ inline void mma_bf16(float (&d)[4], const std::uint32_t (&a)[2], std::uint32_t b) {
  SSMBENCH_NEEDS_SM80(
      asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 "
                   "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};\n"
                   : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                   : "r"(a[0]), "r"(a[1]), "r"(b)));
}

/// The same of operands in f16.
__device__ inline void mma_f16(float (&d)[4], const std::uint32_t (&a)[2], std::uint32_t b) {
  SSMBENCH_NEEDS_SM80(
      asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
                   "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};\n"
                   : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                   : "r"(a[0]), "r"(a[1]), "r"(b)));
}

}  // namespace ssmbench
