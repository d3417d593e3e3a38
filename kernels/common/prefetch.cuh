#pragma once

namespace ssmbench {

/// Starts to bring the line at an address of global memory into the L2.
__device__ inline void prefetch_to_l2(const void* line) {
  asm volatile("prefetch.global.L2 [%0];\n" ::"l"(__cvta_generic_to_global(line)));
}

}  // namespace ssmbench
