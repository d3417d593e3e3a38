#pragma once

#include <cuda_runtime_api.h>

#include "base/cuda_error.h"

namespace ssmbench {

/// Throws when a CUDA call failed: OutOfMemory when it ran out of device memory, DeviceError otherwise. The
/// message names the caller's file and line, CUDA's name of the error and its description.
/// (The builtins, and not std::source_location, because clang 14 has only them.)
inline void check_cuda(cudaError_t status, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (status == cudaSuccess) return;
  throw_cuda_error({.is_memory = status == cudaErrorMemoryAllocation,
                    .is_other_gpu = status == cudaErrorNoKernelImageForDevice,
                    .name = cudaGetErrorName(status),
                    .description = cudaGetErrorString(status)},
                   file, line);
}

}  // namespace ssmbench
