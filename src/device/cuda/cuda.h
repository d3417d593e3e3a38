#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/device.h"

namespace ssmbench {

/// CUDA devices that the driver offers; empty with `reason` set when there is none or the driver does not
/// answer.
std::vector<DeviceInfo> cuda_devices(std::string& reason);

std::unique_ptr<Device> open_cuda(int index);

/// Destroys the context of this process.
void leave_cuda(int index);

}  // namespace ssmbench
