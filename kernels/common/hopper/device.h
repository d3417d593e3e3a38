#pragma once

#include <cuda_runtime_api.h>

#include "base/cuda_attribute.h"

namespace ssmbench::hopper {

/// Whether the current GPU is not one of compute capability 9.0, the only one that sm_90a code runs on. False
/// without a GPU: implementations are listed there.
inline bool wrong_device() {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  return cuda_attribute(cudaDevAttrComputeCapabilityMajor, device) != 9 ||
         cuda_attribute(cudaDevAttrComputeCapabilityMinor, device) != 0;
}

}  // namespace ssmbench::hopper
