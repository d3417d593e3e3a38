#pragma once

#include "device/device.h"
#include "model/implementation.h"
#include "record/result.h"
#include "sweep/prepared_run.h"

namespace ssmbench {

/// Launches one implementation on one case `warmup` times, and then once for profilers (device/profiler.h),
/// in a range named by the case's id. Nothing is verified or timed: `result` becomes unverified. Throws what
/// the device and the implementation throw.
void profile_run(Device& device, const DeviceInputs& inputs, const Implementation& implementation, int warmup,
                 CaseResult& result);

}  // namespace ssmbench
