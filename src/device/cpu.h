#pragma once

#include <cstddef>
#include <memory>

#include "device/device.h"

namespace ssmbench {

DeviceInfo cpu_info();
/// Bytes of all data caches of all levels together.
std::size_t cpu_cache_bytes();
std::unique_ptr<Device> open_cpu();

}  // namespace ssmbench
