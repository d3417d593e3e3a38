#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/digest.h"
#include "device/slices.h"
#include "model/implementation.h"

namespace ssmbench {

struct DeviceInfo {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  int ranks = 1;                               ///< more: a team of so many, each on a part of it
  bool has_device_per_rank = false;            ///< of a team: no two share a GPU
  std::string name;                            ///< as the vendor names it
  std::size_t total_bytes = 0;                 ///< memory of the device
  std::size_t free_bytes = 0;                  ///< of it, available now
  std::string uuid = {};                       ///< of a GPU
  std::map<std::string, std::string> details;  ///< driver, compute capability, clocks, threads, …
  std::string untimed = {};                    ///< why times of it would say nothing; empty: they do
};

/// What a device's clock does at a moment.
struct ClockReading {
  double mhz = 0;
  bool held_down = false;  ///< by heat or the power supply, not by the device's own power limit
};

/// What timing one launch found.
struct LaunchTime {
  double ms = 0;          ///< that it took on the device
  double enqueue_ms = 0;  ///< that it took the host to enqueue it; 0 where nothing is enqueued
  /// The device got to it before all of it was enqueued, so that `ms` may hold time of the host.
  bool queue_ran_dry = false;
};

class TeamRun;  // device/team_run.h

/// An implementation that is bound to tensors, ready to launch.
struct BoundRun {
  Launch launch;
  std::shared_ptr<TeamRun> team = {};  ///< on a team; else null
};

/// Where an implementation runs: memory, copies, and a clock for its work.
/// Every member throws DeviceError when the device fails and OutOfMemory when memory runs out.
class Device {
 public:
  virtual ~Device() = default;
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  Device(Device&&) = delete;
  Device& operator=(Device&&) = delete;

  virtual DeviceInfo info() const = 0;
  /// True where implementations can read host memory in place, so that inputs need no second copy.
  virtual bool shares_host_memory() const = 0;

  using Buffer = std::shared_ptr<void>;
  /// With a guard band on both sides (model/guard_band.h).
  virtual Buffer allocate(std::size_t bytes) = 0;
  virtual void copy_in(void* device, const void* host, std::size_t bytes) = 0;
  virtual void copy_out(void* host, const void* device, std::size_t bytes) = 0;
  /// The same without waiting; host memory has to stay as it is until synchronize().
  virtual void enqueue_copy_in(void* device, const void* host, std::size_t bytes) {
    copy_in(device, host, bytes);
  }
  virtual void enqueue_copy_out(void* host, const void* device, std::size_t bytes) {
    copy_out(host, device, bytes);
  }
  /// At least so much page-locked host memory, until the next call; null where there is none.
  virtual void* pinned_memory(std::size_t /*bytes*/) { return nullptr; }
  /// These enqueue: launches that follow find them done.
  virtual void fill(void* device, unsigned char value, std::size_t bytes) = 0;
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  /// The same of rows of `width` bytes, which lie a pitch apart.
  virtual void copy_rows(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                         std::size_t width, std::size_t rows) {
    for (std::size_t row = 0; row < rows; ++row)
      copy(static_cast<std::byte*>(to) + row * to_pitch,
           static_cast<const std::byte*>(from) + row * from_pitch, width);
  }
  /// The same of slices that change places (device/slices.h).
  virtual void exchange(const std::vector<SlicePair>& pairs) = 0;
  /// The digest of each span (device/digest.h), after what was enqueued before.
  virtual std::vector<std::uint64_t> digests(const std::vector<MemorySpan>& spans) = 0;

  /// Implementation::bind, of tensors in this device's memory.
  virtual BoundRun bind(const Implementation& implementation, const Problem& problem,
                        const TensorSet& tensors, void* workspace) {
    return {.launch = implementation.bind(problem, tensors, workspace)};
  }
  /// What launches are given: a cudaStream_t, or nullptr on the CPU.
  virtual void* stream() = 0;
  /// Waits, and makes another stream, or the first one again, the one that everything is enqueued on; nothing
  /// on the CPU. The second one is idle for a moment first, so that work that an implementation enqueues
  /// elsewhere runs ahead of what should have come before it.
  virtual void use_second_stream(bool second) = 0;
  virtual void synchronize() = 0;
  /// Waits until nothing runs any more that launches started, on whatever stream or thread. False where that
  /// does not end: threads of this process still use a core half a second after the last launch returned.
  virtual bool wait_until_idle() = 0;
  /// Times one launch and waits for it: between two events on the stream, or by the steady clock on the CPU.
  /// The stream is kept idle for `idle_ms` first, so that launch and events are enqueued before the device
  /// gets there; not on the CPU.
  virtual LaunchTime time_launch(const Launch& launch, double idle_ms) = 0;
  /// Evicts the last-level cache so that the next launch finds its inputs in memory. False: not possible
  /// here.
  virtual bool flush_cache() = 0;
  /// A launch that replays what this one enqueues, as a CUDA graph. Nothing where there are no graphs, or
  /// where it does what cannot be captured; the device is as before then.
  virtual std::optional<Launch> capture(const Launch& /*launch*/) { return {}; }
  /// Nothing where the device does not say.
  virtual std::optional<ClockReading> read_clock() { return {}; }
  /// Keeps each thread of launches on a core of its own as long as the result lives; null where launches have
  /// no threads.
  virtual std::shared_ptr<void> pin_threads() { return nullptr; }
};

/// All devices of this machine: the CPU first, then CUDA devices, if this build has CUDA and the driver
/// answers.
std::vector<DeviceInfo> list_devices();

/// Why there is no CUDA device to use ("built without CUDA", the driver's message); empty when there is one.
std::string no_cuda_reason();

std::unique_ptr<Device> open_device(DeviceKind kind, int index = 0);

/// Gives back what the driver holds on the device for this process, which has nothing open on it.
void leave_device(const DeviceInfo& device);

}  // namespace ssmbench
