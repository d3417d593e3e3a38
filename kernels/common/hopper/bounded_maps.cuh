#pragma once

// Tensor maps that kernels make: of a tensor whose size in a dimension is known on the device alone.
//
// Source: PTX ISA, "tensormap.replace", "membar/fence", fence.proxy.tensormap.

#include <cuda.h>

#include <cstdint>

#include "kernels/common/hopper/mbarrier.cuh"

namespace ssmbench::hopper {

/// Copies a map to memory, with another size of dimension kDimension, innermost first. By one thread.
template <int kDimension>
__device__ inline void store_bounded_map(CUtensorMap& to, const CUtensorMap& from, int size) {
  auto* const words = reinterpret_cast<uint4*>(&to);
  const auto* const of = reinterpret_cast<const uint4*>(&from);
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(CUtensorMap) / sizeof(uint4)); ++i) words[i] = of[i];
  SSMBENCH_NEEDS_SM90(
      asm volatile("tensormap.replace.tile.global_dim.global.b1024.b32 [%0], %1, %2;\n"
                   "fence.proxy.tensormap::generic.release.gpu;\n" ::"l"(__cvta_generic_to_global(&to)),
                   "n"(kDimension), "r"(size)
                   : "memory"));
}

/// By the thread that uses the map, before it does: kernels before this one have written it.
__device__ inline void acquire_map(const CUtensorMap& map) {
  SSMBENCH_NEEDS_SM90(asm volatile(
      "fence.proxy.tensormap::generic.acquire.gpu [%0], 128;\n" ::"l"(__cvta_generic_to_global(&map))
      : "memory"));
}

}  // namespace ssmbench::hopper
