#pragma once

#include <functional>
#include <memory>

#include "device/device.h"
#include "model/communicator.h"

namespace ssmbench {

/// How ranks exchange what is in the memory of their devices.
enum class DataPath {
  host_memory,  ///< ranks on the CPU as it is, those on GPUs by staged copies
  nccl,
};

/// For which devices are idle before an exchange, so that its calls are in the queue when they get there.
inline constexpr double kQueuedMs = 0.2;

/// A rank's device, and its ways to the other ranks.
class RankLinks {
 public:
  /// Collective. `of_host` exchanges memory of the host; it and the device have to live as long. Throws
  /// DeviceError.
  RankLinks(Communicator& of_host, Device& device, DataPath path);

  Device& device() { return device_; }
  Communicator& of_host() { return of_host_; }
  /// Exchanges memory of the device.
  Communicator& of_device() { return through_ == nullptr ? of_host_ : *through_; }
  /// What work takes on this rank's device from when all ranks are ready; the device is idle for `idle_ms`
  /// first (Device::time_launch). Collective.
  LaunchTime time_together(const std::function<void()>& work, double idle_ms);

 private:
  Communicator& of_host_;
  Device& device_;
  std::unique_ptr<Communicator> through_;  ///< null where devices share the host's memory
};

}  // namespace ssmbench
