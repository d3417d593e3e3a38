#pragma once

#include <atomic>

namespace ssmbench {

/// While alive, the first Ctrl-C (SIGINT, or SIGTERM, or SIGHUP of a terminal that is gone, unless nohup has
/// it ignored) sets a flag that long work looks at, so that what is finished gets written; another one, later
/// than a quarter of a second, ends the process at once. One at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  InterruptGuard(InterruptGuard&&) = delete;
  InterruptGuard& operator=(InterruptGuard&&) = delete;

  const std::atomic<bool>& flag() const;
};

}  // namespace ssmbench
