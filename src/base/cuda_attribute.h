#pragma once

#include <cuda_runtime_api.h>

#include "base/cuda_check.h"

namespace ssmbench {

/// An attribute of a device. Throws as check_cuda does.
inline int cuda_attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  check_cuda(cudaDeviceGetAttribute(&value, which, device));
  return value;
}

/// The same of the current device.
inline int cuda_attribute(cudaDeviceAttr which) {
  int device = 0;
  check_cuda(cudaGetDevice(&device));
  return cuda_attribute(which, device);
}

}  // namespace ssmbench
