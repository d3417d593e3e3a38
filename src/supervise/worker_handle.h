#pragma once

#include <poll.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "record/cause.h"

namespace ssmbench {

/// A worker process, here or on another host, as whoever leads it sees it. No member waits.
class WorkerHandle {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~WorkerHandle() = default;
  WorkerHandle() = default;
  WorkerHandle(const WorkerHandle&) = delete;
  WorkerHandle& operator=(const WorkerHandle&) = delete;
  WorkerHandle(WorkerHandle&&) = delete;
  WorkerHandle& operator=(WorkerHandle&&) = delete;

  /// Sends it an order (protocol.h).
  virtual void order(const std::string& bytes) = 0;
  /// No order follows: when it has done those that it has, it ends.
  virtual void no_more_orders() = 0;

  enum class Event {
    line,     ///< a line came
    closed,   ///< it ended, or closed its pipe, and all whole lines were read
    nothing,  ///< nothing came so far
  };
  virtual Event next_line(std::string& line) = 0;
  /// Adds what to wait on until next_line may find something.
  virtual void watch(std::vector<pollfd>& descriptors) const = 0;

  /// Lets it end by itself for as long as `grace`; then it is killed, and all that it started.
  virtual void end(Clock::duration grace) = 0;
  struct Ending {
    /// How: crash ("segmentation fault", "exited with status 3"), out_of_memory or timeout ("hung").
    Explanation how;
    bool is_gone = true;  ///< false: it was killed, and is there all the same
  };
  /// Nothing before it has ended, after end().
  virtual std::optional<Ending> ended() = 0;
};

}  // namespace ssmbench
