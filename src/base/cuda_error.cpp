#include "base/cuda_error.h"

#include <string>
#include <string_view>

#include "base/errors.h"

namespace ssmbench {

void throw_cuda_error(const CudaError& error, const char* file, int line) {
  const std::string_view path = file;
  std::string message = std::string(path.substr(path.rfind('/') + 1)) + ":" + std::to_string(line) + ": " +
                        error.name + ": " + error.description;
  if (error.is_other_gpu)
    message +=
        "; this build is for other GPUs: build on a machine with this one, or with "
        "SSMBENCH_CUDA_ARCHITECTURES=all";
  if (error.is_memory) throw OutOfMemory(message);
  throw DeviceError(message);
}

}  // namespace ssmbench
