#include "device/cuda/nvml.h"

#include <dlfcn.h>

namespace ssmbench {
namespace {

// From nvml.h, whose numbers and names are stable.
constexpr int kSuccess = 0;
constexpr int kClockOfSms = 1;  // NVML_CLOCK_SM
// nvmlClocksEventReason…: HwSlowdown, SwThermalSlowdown, HwThermalSlowdown, HwPowerBrakeSlowdown.
constexpr unsigned long long kHeldDown = 0x8 | 0x20 | 0x40 | 0x80;

}  // namespace

struct Nvml::Functions {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*handle_by_bus_id)(const char*, void**) = nullptr;
  int (*clock)(void*, int, unsigned*) = nullptr;
  int (*reasons)(void*, unsigned long long*) = nullptr;
  bool is_usable = false;

  Functions() {
    if (library == nullptr) return;
    is_usable = find("nvmlInit_v2", init) && find("nvmlShutdown", shutdown) &&
                find("nvmlDeviceGetHandleByPciBusId_v2", handle_by_bus_id) &&
                find("nvmlDeviceGetClockInfo", clock) &&
                find("nvmlDeviceGetCurrentClocksThrottleReasons", reasons) && init() == kSuccess;
  }
  ~Functions() {
    if (is_usable) shutdown();
    if (library != nullptr) dlclose(library);
  }
  Functions(const Functions&) = delete;
  Functions& operator=(const Functions&) = delete;
  Functions(Functions&&) = delete;
  Functions& operator=(Functions&&) = delete;

 private:
  template <class Function>
  bool find(const char* name, Function& function) const {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
  }
};

Nvml::Nvml(const std::string& bus_id) : functions_(std::make_shared<Functions>()) {
  if (!functions_->is_usable || functions_->handle_by_bus_id(bus_id.c_str(), &device_) != kSuccess)
    functions_.reset();
}

std::optional<ClockReading> Nvml::read() const {
  if (functions_ == nullptr) return {};
  unsigned mhz = 0;
  if (functions_->clock(device_, kClockOfSms, &mhz) != kSuccess) return {};
  unsigned long long reasons = 0;  // some devices do not say
  if (functions_->reasons(device_, &reasons) != kSuccess) reasons = 0;
  return ClockReading{.mhz = static_cast<double>(mhz), .held_down = (reasons & kHeldDown) != 0};
}

}  // namespace ssmbench
