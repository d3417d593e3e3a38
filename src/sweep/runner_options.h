#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>

#include "bench/timer.h"
#include "device/ceilings.h"
#include "device/device.h"
#include "model/case.h"
#include "model/implementation.h"
#include "sweep/host_share.h"
#include "sweep/judge_run.h"

namespace ssmbench {

/// How the jobs of a plan are run.
struct RunnerOptions {
  bool verify = true;
  bool time = true;
  bool profile = false;  ///< neither, but once for profilers
  /// A reference that takes more of the host's memory is computed in parts, for each comparison.
  std::size_t reference_bytes = std::numeric_limits<std::size_t>::max();
  TimingPolicy timing;
  RerunPolicy reruns = {};
  std::map<std::string, Ceilings> ceilings = {};  ///< by device ("cuda:0"), of those that are calibrated
  /// The ceilings of a device, where it reaches more than those now: asked before a result is called too fast.
  /// Empty: they are as they are.
  std::function<Ceilings(const DeviceInfo& device, const Ceilings& known)> measure_again = {};
  /// What other processes of the same run take of this host; null: there are none.
  HostShare* host = nullptr;
  /// In place of open_device, where the plan's device stands for one that is like it.
  std::function<std::unique_ptr<Device>(const DeviceInfo&)> open = [](const DeviceInfo& info) {
    return open_device(info.kind, info.index);
  };
  /// The command that runs one job again.
  std::function<std::string(const Case&, const Implementation&, const DeviceInfo&)> repro;
};

}  // namespace ssmbench
