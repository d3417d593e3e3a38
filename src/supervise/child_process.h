#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "supervise/worker_handle.h"

namespace ssmbench {

/// This executable once more, in a process group of its own, with nothing to read, its stdout going to
/// stderr, and two descriptors (protocol.h): its orders, and a pipe for its lines. Its environment lacks what
/// launchers of parallel programs put there: it is no rank of one.
class ChildProcess : public WorkerHandle {
 public:
  /// Throws DeviceError when the system does not give another process.
  explicit ChildProcess(const std::vector<std::string>& arguments);
  /// Kills it and all it started, and waits until it is gone.
  ~ChildProcess() override;
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ChildProcess(ChildProcess&&) = delete;
  ChildProcess& operator=(ChildProcess&&) = delete;

  void order(const std::string& bytes) override;
  void no_more_orders() override;
  Event next_line(std::string& line) override;
  void watch(std::vector<pollfd>& descriptors) const override;
  void end(Clock::duration grace) override;
  std::optional<Ending> ended() override;

 private:
  bool take_line(std::string& line);
  enum class Read { some, none_yet, end };
  Read read_more();
  /// Writes as many of the orders as there is room for.
  void write_orders();
  bool has_ended() const;

  pid_t process_ = -1;  ///< -1 once it was waited for
  int orders_ = -1;     ///< -1 once there are no more
  int pipe_ = -1;
  std::string unsent_;
  bool is_last_order_ = false;
  std::string buffer_;
  long oom_kills_before_;
  std::optional<Clock::time_point> kill_at_;  ///< once it is to end
  std::optional<Clock::time_point> killed_;
  bool ended_by_itself_ = false;
  std::optional<Ending> ending_;
};

}  // namespace ssmbench
