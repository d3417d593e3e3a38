#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace ssmbench {

/// a·(high + low) of pairs of 16-bit elements, rounded as if the sum were exact: the product with `low` is
/// small.
template <class Io>
__device__ std::uint32_t multiply_pairs(std::uint32_t a, std::uint32_t high, std::uint32_t low);
template <>
__device__ inline std::uint32_t multiply_pairs<__nv_bfloat16>(std::uint32_t a, std::uint32_t high,
                                                              std::uint32_t low) {
  asm("mul.rn.bf16x2 %0, %1, %0;" : "+r"(low) : "r"(a));
  asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(low) : "r"(a), "r"(high));
  return low;
}
template <>
__device__ inline std::uint32_t multiply_pairs<__half>(std::uint32_t a, std::uint32_t high,
                                                       std::uint32_t low) {
  asm("mul.rn.f16x2 %0, %1, %0;" : "+r"(low) : "r"(a));
  asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(low) : "r"(a), "r"(high));
  return low;
}

/// a·b of pairs.
template <class Io>
__device__ std::uint32_t multiply_pairs(std::uint32_t a, std::uint32_t b);
template <>
__device__ inline std::uint32_t multiply_pairs<__half>(std::uint32_t a, std::uint32_t b) {
  asm("mul.rn.f16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
  return a;
}

}  // namespace ssmbench
