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
  /// As long as the result lives, threads are as many, and run where, they would without the others.
  virtual std::shared_ptr<void> all_cores() = 0;
};

}  // namespace ssmbench
