#pragma once

namespace ssmbench {

/// A CUDA call that failed, as far as messages need it. No CUDA types: what throws is compiled without.
struct CudaError {
  bool is_memory;     ///< ran out of device memory
  bool is_other_gpu;  ///< there is no machine code for this GPU
  const char* name;
  const char* description;
};

/// OutOfMemory or DeviceError, with the file's name and the line. Apart from check_cuda, which every CUDA
/// source parses three times: <stdexcept> costs each half a second.
[[noreturn]] void throw_cuda_error(const CudaError& error, const char* file, int line);

}  // namespace ssmbench
