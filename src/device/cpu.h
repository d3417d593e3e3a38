#pragma once

#include <memory>

#include "device/device.h"

namespace ssmbench {

DeviceInfo cpu_info();
std::unique_ptr<Device> open_cpu();

}  // namespace ssmbench
