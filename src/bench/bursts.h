#pragma once

#include <optional>
#include <string>
#include <vector>

#include "device/device.h"
#include "record/result.h"

namespace ssmbench {

/// Samples that were taken in a row, and the device's clock meanwhile: the lower of its readings before and
/// after, where it has any.
struct Burst {
  std::vector<double> samples_ms = {};
  int queue_ran_dry = 0;  ///< samples that may hold time of the host
  std::optional<ClockReading> clock = {};
};

/// The lower of two, held down if either is.
std::optional<ClockReading> lower_clock(const std::optional<ClockReading>& a,
                                        const std::optional<ClockReading>& b);

/// For each burst, whether heat or the power supply held the clock down, or something did that the device
/// does not own up to: a clock more than a twentieth below the bursts' median.
std::vector<bool> throttled(const std::vector<Burst>& bursts);

/// What all the samples say, the throttled ones left out and counted; where no others are, they are kept, and
/// `note` says so. `bursts` holds a sample at least.
TimingStats summarize_bursts(const std::vector<Burst>& bursts, std::string& note);

}  // namespace ssmbench
