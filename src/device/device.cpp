#include "device/device.h"

#include <fmt/format.h>

#include "base/errors.h"
#include "device/cpu.h"
#include "device/profiler.h"

#ifdef SSMBENCH_HAS_CUDA
#include "device/cuda/cuda.h"
#endif

namespace ssmbench {
namespace {

#ifdef SSMBENCH_HAS_CUDA
std::vector<DeviceInfo> find_cuda(std::string& reason) {
  return cuda_devices(reason);
}
std::unique_ptr<Device> open_gpu(int index) {
  return open_cuda(index);
}
void leave_gpu(int index) {
  leave_cuda(index);
}
#else
std::vector<DeviceInfo> find_cuda(std::string& reason) {
  reason = "this build has no CUDA";
  return {};
}
std::unique_ptr<Device> open_gpu(int /*index*/) {
  throw DeviceError("this build has no CUDA");
}
void leave_gpu(int /*index*/) {}
#endif

}  // namespace

#ifndef SSMBENCH_HAS_CUDA
void profile_launch(Device& /*device*/, const Launch& /*launch*/, const std::string& /*name*/) {
  throw DeviceError("this build has no CUDA");
}
#endif

std::vector<DeviceInfo> list_devices() {
  std::vector<DeviceInfo> devices{cpu_info()};
  std::string reason;
  for (auto& device : find_cuda(reason)) devices.push_back(std::move(device));
  return devices;
}

std::string no_cuda_reason() {
  std::string reason;
  find_cuda(reason);
  return reason;
}

std::unique_ptr<Device> open_device(DeviceKind kind, int index) {
  if (kind == DeviceKind::cpu) return open_cpu();
  std::string reason;
  const auto count = static_cast<int>(find_cuda(reason).size());
  if (count == 0) throw DeviceError(fmt::format("no CUDA device: {}", reason));
  if (index < 0 || index >= count)
    throw DeviceError(fmt::format("no CUDA device {}: this machine has {}", index, count));
  return open_gpu(index);
}

void leave_device(const DeviceInfo& device) {
  if (device.kind == DeviceKind::cuda) leave_gpu(device.index);
}

}  // namespace ssmbench
