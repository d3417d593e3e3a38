#pragma once

#include <atomic>
#include <functional>
#include <string>

namespace ssmbench {

/// What one case of a file may take to be judged, unless --timeout says otherwise: as long as a reference may
/// take in a run.
inline constexpr double kDefaultJudgingSeconds = 6000;

/// Calls `work` with a flag at which it has to throw Interrupted: set once `interrupted` is, or after
/// `seconds`. In the latter case throws UsageError, which says that `what` takes too long. The time in which
/// the process is stopped (Ctrl-Z) does not count.
void within_time(double seconds, const std::atomic<bool>& interrupted, const std::string& what,
                 const std::function<void(const std::atomic<bool>& stop)>& work);

}  // namespace ssmbench
