#pragma once

#include <atomic>
#include <functional>
#include <string>

namespace ssmbench {

/// What reading a file of any size may take; a large one may take more. A machine that is busy gives a reader
/// a part of its time only.
struct RehearsalLimits {
  unsigned cpu_seconds = 5, wall_seconds = 20;
};

/// Runs `read` in a child process, whatever it may throw there; the child dies with this process. Throws the
/// UsageError about `where` in `file` (see reject_file) when the child crashes or takes longer than a file of
/// this size is worth, and Interrupted when `stop` is set. What `read` changes in memory is lost with the
/// child. The time in which this process is stopped (Ctrl-Z) does not count.
void rehearse(const std::string& file, const std::string& where, const std::function<void()>& read,
              const std::atomic<bool>& stop, RehearsalLimits for_any_file = {});

}  // namespace ssmbench
