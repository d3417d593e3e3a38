#pragma once

#include <cstddef>
#include <vector>

#include "device/device.h"
#include "model/communicator.h"

namespace ssmbench {

/// Ranks that exchange memory of their devices through that of the host, which `host` exchanges: those that
/// share a GPU, which NCCL does not allow, or have no NCCL. Every call waits for the device. It is for
/// correctness; its times say nothing about a network.
class StagedTeam : public Communicator {
 public:
  /// Both have to live as long.
  StagedTeam(Communicator& host, Device& device) : host_(host), device_(device) {}

  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  void all_gather(const void* from, void* to, std::size_t bytes, void* stream) override;
  void all_reduce(float* values, std::size_t count, void* stream) override;
  void all_to_all(const void* from, void* to, std::size_t bytes, void* stream) override;
  void send(const void* from, std::size_t bytes, int to, void* stream) override;
  void receive(void* to, std::size_t bytes, int from, void* stream) override;
  void barrier() override { host_.barrier(); }
  double agree(double value) override { return host_.agree(value); }

  /// What is staged at a time of each rank.
  static constexpr std::size_t kPiece = std::size_t{1} << 20;

 private:
  /// Page-locked where there is such memory; until the next call.
  std::byte* staging(std::size_t bytes);

  Communicator& host_;
  Device& device_;
  std::vector<std::byte> pageable_;
};

}  // namespace ssmbench
