#include "device/ceilings.h"

#include <fmt/format.h>

#include "base/errors.h"
#include "device/calibrate_cpu.h"

#ifdef SSMBENCH_HAS_CUDA
#include "device/cuda/calibrate.h"
#endif

namespace ssmbench {

Ceilings measure_ceilings(const DeviceInfo& device) {
  if (device.kind == DeviceKind::cpu) return calibrate_cpu();
#ifdef SSMBENCH_HAS_CUDA
  return calibrate_cuda(device.index);
#else
  throw DeviceError("this build has no CUDA");
#endif
}

std::string ceilings_key(const DeviceInfo& device) {
  std::string key = device.name;
  if (!device.uuid.empty()) key += " " + device.uuid;
  for (const char* detail : {"cuda_driver", "cores", "threads", "instruction_set"})
    if (const auto found = device.details.find(detail); found != device.details.end())
      key += fmt::format(", {} {}", detail, found->second);
  return key;
}

}  // namespace ssmbench
