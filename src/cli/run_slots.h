#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/progress.h"
#include "cli/run_options.h"
#include "device/device.h"
#include "supervise/host_lock.h"
#include "supervise/slot.h"

namespace ssmbench {

/// What a run works on.
struct SlotDevices {
  std::vector<DeviceInfo> of_plan;
  std::vector<DeviceInfo> gpus;  ///< of the slots, all alike: the plan has the first. Empty without --gpus
};

/// By --device, --cpus, --gpus and --ranks, from the devices of this machine. `note` says what was chosen where nobody
/// did. Throws UsageError, and DeviceError when an asked-for device is missing.
SlotDevices choose_slot_devices(const RunOptions& options, std::string& note);

/// So many GPUs ("2", "all") of those that --device leaves ("auto", "cuda", "cuda:1,cuda:3", "all"), which
/// have to be alike: a plan has one of them, and its records are of any. `devices` are all of a machine.
/// `reason`: why there is no GPU, where there is none. Throws UsageError and DeviceError.
std::vector<DeviceInfo> choose_gpus(const std::string& count, const std::string& device,
                                    const std::vector<DeviceInfo>& devices, const std::string& reason);

/// Says of GPUs, of which the plan has the first, whose measured ceilings are not as high as its.
void warn_of_unlike_ceilings(const std::vector<DeviceInfo>& gpus, Progress& progress);

/// Where a run's workers are.
struct RunSlots {
  std::vector<SlotPlace> places;                       ///< one without a name, or several
  std::map<std::string, std::size_t> host_bytes = {};  ///< SupervisorOptions
  std::shared_ptr<HostLockFile> lock = {};             ///< of this host; null for one slot
  std::chrono::milliseconds look_every{200};           ///< SupervisorOptions
  std::function<void()> look = [] {};                  ///< SupervisorOptions

  bool are_several() const { return !places.front().name.empty(); }
};

/// On this host; `gpus` as chosen. Throws UsageError where the slots would have to share cores that may be
/// timed.
RunSlots local_slots(const RunOptions& options, const std::vector<DeviceInfo>& gpus);

/// A place of this host, for workers of this process.
SlotPlace local_place(const std::vector<std::string>& argv);

/// The command for a process of its own.
std::vector<std::string> with_option(std::vector<std::string> argv, const char* option);

}  // namespace ssmbench
