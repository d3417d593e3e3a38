#pragma once

#include <memory>

namespace ssmbench {

/// How processes that run jobs on one host at the same time keep out of each other's way: each makes inputs
/// and references on cores of its own.
class HostShare {
 public:
  virtual ~HostShare() = default;
  HostShare() = default;
  HostShare(const HostShare&) = delete;
  HostShare& operator=(const HostShare&) = delete;
  HostShare(HostShare&&) = delete;
  HostShare& operator=(HostShare&&) = delete;

  /// As long as the result lives none of the others works. Waits until they have come to where they can wait.
  virtual std::shared_ptr<void> alone() = 0;
  /// As long as the result lives all others are off_memory(). Waits until they have come to where they can
  /// wait.
  virtual std::shared_ptr<void> memory_alone() = 0;
  /// The same where they are already; null where this would have to wait.
  virtual std::shared_ptr<void> try_memory_alone() = 0;
  /// To say that this process hardly uses the host's memory, and does nothing that use by others disturbs, as
  /// long as the result lives.
  virtual std::shared_ptr<void> off_memory() = 0;
  /// As long as the result lives, threads are as many, and run where, they would without the others.
  virtual std::shared_ptr<void> all_cores() = 0;
};

}  // namespace ssmbench
