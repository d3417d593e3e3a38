#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "model/communicator.h"

// A communicator for ranks of one host that exchange host memory: CPU ranks, and ranks on one GPU by staged
// copies. It is for correctness and for tests; its times say nothing about a network.

namespace ssmbench {

/// The POSIX shared memory of one team. Whoever starts the ranks makes it and gives them its name; it is gone
/// with the object, however the ranks have ended.
class TeamMemory {
 public:
  /// Room for `ranks` ranks (1 or more), which exchange `mailbox_bytes` bytes at a time. Throws DeviceError
  /// when the host has no room for it.
  explicit TeamMemory(int ranks, std::size_t mailbox_bytes = kMailboxBytes);
  ~TeamMemory();
  TeamMemory(const TeamMemory&) = delete;
  TeamMemory& operator=(const TeamMemory&) = delete;
  TeamMemory(TeamMemory&&) = delete;
  TeamMemory& operator=(TeamMemory&&) = delete;

  /// "/ssmbench-1234-0", for join_team.
  const std::string& name() const { return name_; }

  static constexpr std::size_t kMailboxBytes = std::size_t{1} << 20;

 private:
  std::string name_;
};

/// Joins the team as `rank` and waits for the others. A rank that ends without leaving (by the destructor, in
/// the thread that joined) makes every other rank's next call throw at once; one that is silent does so after
/// `patience`, which has to be longer than any rank computes between two calls. Throws DeviceError.
std::unique_ptr<Communicator> join_team(const std::string& name, int rank,
                                        std::chrono::milliseconds patience);

}  // namespace ssmbench
