#pragma once

#include <cuda_runtime_api.h>

#include <source_location>
#include <string>
#include <string_view>

#include "model/errors.h"

namespace ssmbench {

/// Throws when a CUDA call failed: OutOfMemory when it ran out of device memory, DeviceError otherwise. The
/// message names the caller's file and line, CUDA's name of the error and its description.
inline void check_cuda(cudaError_t status, std::source_location where = std::source_location::current()) {
  if (status == cudaSuccess) return;
  const std::string_view path = where.file_name();
  const std::string message = std::string(path.substr(path.rfind('/') + 1)) + ":" +
                              std::to_string(where.line()) + ": " + cudaGetErrorName(status) + ": " +
                              cudaGetErrorString(status);
  if (status == cudaErrorMemoryAllocation) throw OutOfMemory(message);
  throw DeviceError(message);
}

}  // namespace ssmbench
