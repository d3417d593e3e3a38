#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "record/cause.h"

namespace ssmbench {

/// As long as deadlines can be ahead: what clocks can still count.
inline constexpr double kForeverSeconds = 1e8;

/// A pause between two looks at the clock that is longer is one in which this process did not run.
inline constexpr std::chrono::seconds kLongestPause{2};

/// This executable once more, in a process group of its own, with nothing to read, its stdout going to
/// stderr, and two descriptors (protocol.h): what it is told, and a pipe for its lines.
class ChildProcess {
 public:
  using Clock = std::chrono::steady_clock;

  /// Throws DeviceError when the system does not give another process.
  ChildProcess(const std::vector<std::string>& arguments, const std::string& orders);
  /// Kills it and all it started.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ChildProcess(ChildProcess&&) = delete;
  ChildProcess& operator=(ChildProcess&&) = delete;

  /// Steady time since some moment, without that in which this process was stopped (Ctrl-Z) or the machine
  /// slept, as far as next_line is waiting or this is called at least once in kLongestPause.
  Clock::time_point now();

  enum class Event {
    line,         ///< a line came
    closed,       ///< it ended, or closed its pipe, and all whole lines were read
    timed_out,    ///< no line came until the deadline
    interrupted,  ///< `stop` is set
  };
  /// Waits for what comes first; the deadline is a time of now(). Lines that were sent before a deadline that has passed come all the same.
  Event next_line(std::string& line, Clock::time_point deadline, const std::atomic<bool>& stop);

  /// Gives it `grace` to end by itself, then kills it and all it started. How it ended: crash
  /// ("segmentation fault", "exited with status 3"), out_of_memory or timeout ("hung").
  Explanation end(Clock::duration grace);

 private:
  bool take_line(std::string& line);
  /// False at the end of the pipe.
  bool read_more();
  bool has_ended() const;

  pid_t process_ = -1;  ///< -1 once it was waited for
  int pipe_ = -1;
  std::string buffer_;
  Clock::time_point last_now_ = Clock::now();
  Clock::duration paused_{};
  long oom_kills_before_;
};

}  // namespace ssmbench
