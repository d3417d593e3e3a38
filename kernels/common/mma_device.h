#pragma once

#include <cuda_runtime_api.h>

#include "base/cuda_attribute.h"

namespace ssmbench {

/// Whether the current GPU has the products of mma.cuh. True without a GPU: implementations are listed there.
inline bool device_has_mma() {
  int device = 0;
  if (cudaGetDevice(&device) == cudaSuccess)
    return cuda_attribute(cudaDevAttrComputeCapabilityMajor, device) >= 8;
  static_cast<void>(cudaGetLastError());
  return true;
}

}  // namespace ssmbench
