#pragma once

#include <memory>
#include <optional>
#include <string>

#include "device/device.h"

namespace ssmbench {

/// The clock of one GPU as the driver's management library says it, which is looked for at run time: a
/// machine without it measures all the same.
class Nvml {
 public:
  /// `bus_id`: of cudaDeviceGetPCIBusId.
  explicit Nvml(const std::string& bus_id);

  /// Nothing where the library is missing or does not answer.
  std::optional<ClockReading> read() const;

 private:
  struct Functions;
  std::shared_ptr<const Functions> functions_;
  void* device_ = nullptr;
};

}  // namespace ssmbench
