#pragma once

#include <atomic>
#include <optional>
#include <vector>

#include "device/device.h"
#include "model/tensor.h"
#include "record/result.h"

namespace ssmbench {

/// A tensor that goes to the device.
struct Upload {
  void* device;
  const void* host;
  std::size_t bytes;
};

/// Times what it takes to bring one case's inputs to a device, launch, and bring the outputs back: medians of
/// a few times each, by the host's clock, from the first call until the last byte is there. All copies of one
/// direction are enqueued before anything is waited for. Inputs are written over with what they hold already.
class TransferTimer {
 public:
  /// No time is repeated once `seconds` were spent on it.
  TransferTimer(Device& device, std::vector<Upload> inputs, double seconds, const std::atomic<bool>& stop)
      : device_(device), inputs_(std::move(inputs)), seconds_(seconds), stop_(stop) {}

  /// Makes room on the host for outputs, and fills pinned memory, at the first call only: launches that follow
  /// have tensors of the same sizes. False where the tensors take more than kMostBytes, or the device has no
  /// pinned memory for them.
  bool prepare(const std::vector<MemorySpan>& outputs);

  /// The copies are timed at the first call only. Nothing where prepare() is false.
  std::optional<TransferTimes> measure(const Launch& launch, const std::vector<MemorySpan>& outputs);

  static constexpr std::size_t kMostBytes = std::size_t{1} << 30;

 private:
  struct Download {
    void* host;
    MemorySpan device;
  };
  struct Copies {
    std::vector<Upload> in;
    std::vector<Download> out;
  };
  bool make_room(const std::vector<MemorySpan>& outputs);
  Copies copies(bool pinned, const std::vector<MemorySpan>& outputs) const;
  void enqueue_in(const Copies& copies);
  void enqueue_out(const Copies& copies);
  template <class Work>
  double median_ms(const Work& work);

  Device& device_;
  std::vector<Upload> inputs_;
  double seconds_;
  const std::atomic<bool>& stop_;
  std::byte* pinned_ = nullptr;  ///< the device's: inputs, then outputs
  HostBuffer pageable_outputs_;
  std::optional<bool> is_prepared_;
  std::optional<TransferTimes> copies_only_;
};

}  // namespace ssmbench
