#include "cli/time_limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>

#include "base/errors.h"

namespace ssmbench {

void within_time(double seconds, const std::atomic<bool>& interrupted, const std::string& what,
                 const std::function<void(const std::atomic<bool>& stop)>& work) {
  std::atomic<bool> stop{false};
  std::atomic<bool> is_late{false};
  const std::jthread watch([&](const std::stop_token& done) {
    using Seconds = std::chrono::duration<double>;
    constexpr Seconds kSlice{0.05};
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any wakes;
    // One slice that takes longer was one in which the process did not run.
    for (Seconds waited{0}; waited < Seconds(seconds); waited += kSlice) {
      wakes.wait_for(lock, done, std::min(kSlice, Seconds(seconds) - waited), [] { return false; });
      if (done.stop_requested()) return;
      if (!interrupted) continue;
      stop = true;
      return;
    }
    is_late = true;
    stop = true;
  });
  try {
    work(stop);
  } catch (const Interrupted&) {
    if (!is_late) throw;
    throw UsageError(fmt::format("{}: takes more than {:g} s (--timeout)", what, seconds));
  }
}

}  // namespace ssmbench
