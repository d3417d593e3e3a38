#pragma once

// Products on tensor cores, one after the other and nothing else; operands are zeros, so that power holds the
// clock down as little as can be, and the rate is one that no kernel exceeds for long. On an H200 each
// product takes the 64 cycles that it must at least; the clock is at 1.78 GHz then, and not at 1.98.
//
//   Hopper (sm_90a)   wgmma m64n128, A in registers, B in shared memory: a warpgroup each, 4 per SM
//   8.x and 12.x      mma.sync m16n8: 8 sums per warp, 16 warps per SM
//
// mma.sync reaches under two thirds of Hopper's rate, and what is measured here must be a bound: where the
// code of wgmma is not in the build nothing is measured.

#include <cuda_runtime.h>

#include <cstdint>

#include "model/arithmetic.h"

namespace ssmbench {

inline constexpr int kTensorThreads = 128;  ///< a warpgroup
inline constexpr int kTensorBlocksPerSm = 4;
inline constexpr int kTensorRounds = 512;
inline constexpr int kTensorUnrolled = 8;  ///< products a round, per sum

/// Multiply-adds of one block: 64 × 128 × 32 bytes of operands, or 4 warps of 8 sums of 16 × 8.
template <Math kMath>
constexpr double wgmma_flops_per_block() {
  return 2.0 * 64 * 128 * (kMath == Math::tf32 ? 8 : 16) * kTensorRounds * kTensorUnrolled;
}
template <Math kMath>
constexpr double mma_flops_per_block() {
  return 2.0 * 4 * 8 * 16 * 8 * (kMath == Math::tf32 ? 8 : 16) * kTensorRounds * kTensorUnrolled;
}

#define SSMBENCH_SUMS_8(i)                                                                    \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define SSMBENCH_WGMMA(shape, types, transpose)                                                            \
  asm volatile("wgmma.mma_async.sync.aligned." shape ".f32." types                                         \
               " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "   \
               "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "     \
               "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, "     \
               "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, {%64, %64, %64, %64}, %65, 1, 1, " \
               "1" transpose ";\n"                                                                         \
               : SSMBENCH_SUMS_8(0), SSMBENCH_SUMS_8(8), SSMBENCH_SUMS_8(16), SSMBENCH_SUMS_8(24),         \
                 SSMBENCH_SUMS_8(32), SSMBENCH_SUMS_8(40), SSMBENCH_SUMS_8(48), SSMBENCH_SUMS_8(56)        \
               : "r"(operand), "l"(descriptor))

/// Adds kTensorUnrolled·kTensorRounds products of matrices full of `operand`, which is 0, to 64 × 128 sums.
/// Sets *ran where it is compiled.
template <Math kMath>
__global__ void __launch_bounds__(kTensorThreads, kTensorBlocksPerSm)
    wgmma_kernel(std::uint32_t operand, int* ran) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  // B: 128 × 32 bytes, as 16 × 2 squares of 8 × 16 bytes, each of them contiguous; no swizzle.
  __shared__ alignas(128) std::uint32_t tile[128 * 32 / 4];
  for (unsigned i = threadIdx.x; i < 128 * 32 / 4; i += kTensorThreads) tile[i] = operand;
  __syncthreads();
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
  const auto address = static_cast<std::uint64_t>(__cvta_generic_to_shared(tile));
  const std::uint64_t descriptor =
      (address >> 4) | (std::uint64_t{128 >> 4} << 16) | (std::uint64_t{256 >> 4} << 32);
  float d[64] = {};
  for (int round = 0; round < kTensorRounds; ++round) {
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
#pragma unroll
    for (int i = 0; i < kTensorUnrolled; ++i) {
      if constexpr (kMath == Math::bf16) SSMBENCH_WGMMA("m64n128k16", "bf16.bf16", ", 0");
      if constexpr (kMath == Math::f16) SSMBENCH_WGMMA("m64n128k16", "f16.f16", ", 0");
      if constexpr (kMath == Math::tf32) SSMBENCH_WGMMA("m64n128k8", "tf32.tf32", "");
    }
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n" ::: "memory");
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) *ran = d[0] == 0.0F ? 1 : 2;
#endif
}

#define SSMBENCH_MMA(shape, types)                                                 \
  asm volatile("mma.sync.aligned." shape ".row.col.f32." types                     \
               ".f32 "                                                             \
               "{%0, %1, %2, %3}, {%4, %4, %4, %4}, {%4, %4}, {%0, %1, %2, %3};\n" \
               : "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])        \
               : "r"(operand))

/// The same by warps of 8 sums of 16 × 8.
template <Math kMath>
__global__ void __launch_bounds__(kTensorThreads) mma_kernel(std::uint32_t operand, int* ran) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800 && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
  float d[8][4];  // from other starts, or the compiler makes one of them
  for (int j = 0; j < 32; ++j) d[j / 4][j % 4] = static_cast<float>(j);
#pragma unroll 2
  for (int i = 0; i < kTensorRounds * kTensorUnrolled; ++i) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if constexpr (kMath == Math::bf16) SSMBENCH_MMA("m16n8k16", "bf16.bf16");
      if constexpr (kMath == Math::f16) SSMBENCH_MMA("m16n8k16", "f16.f16");
      if constexpr (kMath == Math::tf32) SSMBENCH_MMA("m16n8k8", "tf32.tf32");
    }
  }
  float sum = 0.0F;
  for (int j = 0; j < 32; ++j) sum += d[j / 4][j % 4];
  if (sum < 0.0F || (blockIdx.x == 0 && threadIdx.x == 0)) *ran = 1;
#endif
}

#undef SSMBENCH_SUMS_8
#undef SSMBENCH_WGMMA
#undef SSMBENCH_MMA

}  // namespace ssmbench
