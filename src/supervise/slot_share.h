#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "supervise/host_lock.h"
#include "supervise/protocol.h"
#include "sweep/host_share.h"

namespace ssmbench {

/// A worker's part of a host on which other workers of the same run are at work. It works on its slot's cores
/// and shares the host lock as long as it has orders.
class SlotShare : public HostShare {
 public:
  /// `waits` is called before and after each time that it has to wait for others, with true and false; in
  /// between again with true every kWaitingEvery, from another thread.
  SlotShare(const WorkerPlace& place, std::function<void(bool)> waits);

  /// As long as the result lives this process is at work.
  std::shared_ptr<void> work();
  /// Lets another process that waits to be alone go first. To be called often, when nothing is being timed.
  void give_way();
  std::shared_ptr<void> alone() override;
  std::shared_ptr<void> memory_alone() override;
  std::shared_ptr<void> try_memory_alone() override;
  std::shared_ptr<void> off_memory() override;
  std::shared_ptr<void> all_cores() override;

 private:
  void lock(HostLock& what, HostLock::Kind kind);
  /// A share of the host, and then one of its memory: who waits for the host has no part of its memory.
  void enter();
  void leave();
  /// As long as the result lives: of memory that this process has alone.
  std::shared_ptr<void> with_memory_alone();

  WorkerPlace place_;
  std::function<void(bool)> waits_;
  int all_threads_;
  HostLock host_, memory_;
  bool is_alone_ = false, has_memory_alone_ = false, is_off_memory_ = false;
};

}  // namespace ssmbench
