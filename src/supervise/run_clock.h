#pragma once

#include <chrono>

namespace ssmbench {

/// As long as deadlines can be ahead: what clocks can still count.
inline constexpr double kForeverSeconds = 1e8;

/// A pause between two looks at the clock that is longer is one in which this process did not run.
inline constexpr std::chrono::seconds kLongestPause{2};

/// Steady time since some moment, without that in which this process was stopped (Ctrl-Z) or the machine
/// slept, as far as it is looked at once in kLongestPause at least.
class RunClock {
 public:
  using Clock = std::chrono::steady_clock;

  Clock::time_point now() {
    const auto now = Clock::now();
    if (now - last_now_ > kLongestPause) paused_ += now - last_now_;
    last_now_ = now;
    return now - paused_;
  }

 private:
  Clock::time_point last_now_ = Clock::now();
  Clock::duration paused_{};
};

}  // namespace ssmbench
