#pragma once

#include <optional>
#include <vector>

#include "catch.h"
#include "device/device.h"

namespace ssmbench::test {

/// The CUDA devices. Without one it says so, in the words by which ctest knows a skipped test.
inline std::vector<DeviceInfo> gpus() {
  std::vector<DeviceInfo> found;
  for (const auto& device : list_devices())
    if (device.kind == DeviceKind::cuda) found.push_back(device);
  if (found.empty()) WARN("skipped: no CUDA device");
  return found;
}

/// The first of them.
inline std::optional<DeviceInfo> gpu_or_skip() {
  const auto found = gpus();
  return found.empty() ? std::nullopt : std::optional(found.front());
}

}  // namespace ssmbench::test
