#include "cli/exit_code.h"

namespace ssmbench {

int exit_code_of(const Summary& summary) {
  const auto count = [&](Status status) {
    const auto found = summary.counts.find(status);
    return found == summary.counts.end() ? 0 : found->second;
  };
  if (summary.interrupted) return kInterrupted;
  if (count(Status::error) > 0) return kDeviceOrCrash;
  if (count(Status::fail) + count(Status::invalid) > 0) return kOutOfTolerance;
  if (count(Status::pass) + count(Status::unverified) == 0) return kNothingMatched;
  return kOk;
}

}  // namespace ssmbench
