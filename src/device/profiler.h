#pragma once

#include <string>

#include "device/device.h"

namespace ssmbench {

/// Enqueues one launch on a CUDA device between cudaProfilerStart and cudaProfilerStop, in an NVTX range of
/// that name, and waits for it. What was enqueued before is waited for first, so that profilers see nothing
/// else. Throws DeviceError.
void profile_launch(Device& device, const Launch& launch, const std::string& name);

}  // namespace ssmbench
