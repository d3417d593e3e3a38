#include "device/profiler.h"

#include <cuda_profiler_api.h>

#include <nvtx3/nvtx3.hpp>

#include "base/cuda_check.h"

namespace ssmbench {

void profile_launch(Device& device, const Launch& launch, const std::string& name) {
  device.synchronize();
  check_cuda(cudaProfilerStart());
  {
    const nvtx3::scoped_range range(name);
    launch(device.stream());
    device.synchronize();
  }
  check_cuda(cudaProfilerStop());
}

}  // namespace ssmbench
