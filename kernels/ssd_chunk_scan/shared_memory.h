#pragma once

#include "base/cuda_attribute.h"

namespace ssmbench {

/// Whether a block on the current device can have this much shared memory, static and dynamic together. True
/// where there is no device: what needs one then says so itself.
inline bool shared_memory_fits(int bytes) {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) {
    cudaGetLastError();  // or the next call reports it
    return true;
  }
  return bytes <= cuda_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
}

}  // namespace ssmbench
