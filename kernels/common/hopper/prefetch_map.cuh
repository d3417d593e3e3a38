#pragma once

// Source: PTX ISA, "prefetch{u}", .tensormap.

#include <cuda.h>

#include "kernels/common/hopper/mbarrier.cuh"

namespace ssmbench::hopper {

/// Starts to load a tensor map that is a kernel's argument, which the first copy by it would wait for.
__device__ inline void prefetch_map(const CUtensorMap& map) {
  SSMBENCH_NEEDS_SM90(asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory"));
}

}  // namespace ssmbench::hopper
