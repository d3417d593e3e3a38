#pragma once

#include <cstddef>
#include <vector>

#include "device/device.h"
#include "model/communicator.h"

namespace ssmbench {

/// A team that does what another one does, and remembers it.
class CountedTeam : public Communicator {
 public:
  /// `team`, which exchanges memory of the device, and the device have to live as long.
  CountedTeam(Communicator& team, Device& device) : team_(team), device_(device) {}

  int rank() const override { return team_.rank(); }
  int size() const override { return team_.size(); }
  void all_gather(const void* from, void* to, std::size_t bytes, void* stream) override;
  void all_reduce(float* values, std::size_t count, void* stream) override;
  void all_to_all(const void* from, void* to, std::size_t bytes, void* stream) override;
  void send(const void* from, std::size_t bytes, int to, void* stream) override;
  void receive(void* to, std::size_t bytes, int from, void* stream) override;
  void barrier() override { team_.barrier(); }
  double agree(double value) override { return team_.agree(value); }

  /// Forgets all calls.
  void reset() { calls_.clear(); }
  /// What this rank has to send for the calls since: to each of the others what an all-gather or an
  /// all-to-all has of it; for a sum of P ranks 2·(P − 1)/P of its bytes, as a ring does.
  double wire_bytes() const;
  /// The same calls once more, with other data. Collective.
  void replay(void* stream);

 private:
  enum class What { all_gather, all_reduce, all_to_all, send, receive };
  struct Call {
    What what;
    std::size_t bytes;
    int peer = 0;
  };

  Communicator& team_;
  Device& device_;
  std::vector<Call> calls_;
  std::size_t bytes_ = 0;
  Device::Buffer from_, to_;  ///< of replays, each of so many bytes
};

}  // namespace ssmbench
