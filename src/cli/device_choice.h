#pragma once

#include <string>
#include <vector>

#include "device/device.h"

namespace ssmbench {

/// The devices that `--device` names. `auto` is the first CUDA device, or the CPU where there is none; `note`
/// then says what was chosen and why. Throws UsageError for a word that is none of auto, cpu, cuda, cuda:N,
/// all, and DeviceError when an asked-for device is missing: never a fallback.
std::vector<DeviceInfo> choose_devices(const std::string& choice, std::string& note);

}  // namespace ssmbench
