#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

#include "base/errors.h"

namespace ssmbench {

/// Throws when a CUDA call failed: OutOfMemory when it ran out of device memory, DeviceError otherwise. The
/// message names the caller's file and line, CUDA's name of the error and its description.
/// (The builtins, and not std::source_location, because clang 14 has only them.)
inline void check_cuda(cudaError_t status, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (status == cudaSuccess) return;
  const std::string_view path = file;
  std::string message = std::string(path.substr(path.rfind('/') + 1)) + ":" + std::to_string(line) + ": " +
                        cudaGetErrorName(status) + ": " + cudaGetErrorString(status);
  if (status == cudaErrorNoKernelImageForDevice)
    message +=
        "; this build is for other GPUs: build on a machine with this one, or with "
        "SSMBENCH_CUDA_ARCHITECTURES=all";
  if (status == cudaErrorMemoryAllocation) throw OutOfMemory(message);
  throw DeviceError(message);
}

}  // namespace ssmbench
