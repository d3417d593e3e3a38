#pragma once

#include <atomic>
#include <optional>
#include <vector>

#include "bench/timer.h"
#include "model/result.h"
#include "reference/reference.h"
#include "sweep/prepared_run.h"

namespace ssmbench {

/// How often an implementation that was right is launched again to see whether it gives the same bits. No
/// further rerun is started once all launches have taken `max_seconds`.
struct RerunPolicy {
  int count = 2;
  double max_seconds = 2;
};

/// What is asked of implementations beside being right at the first launch.
struct JudgePolicy {
  RerunPolicy reruns;
  std::optional<TimingPolicy> timing;  ///< none: not timed
};

/// A case on one device.
struct CaseOnDevice {
  Device& device;
  const DeviceInputs& inputs;
  const ReferenceOutputs* reference;  ///< null: outputs are not verified
};

/// Everything that happens to one implementation on one case: launches it and verifies its outputs; launches
/// it again from other garbage in the workspace, every other time on a second stream; times it; and verifies
/// its outputs once more. Whatever of this goes wrong ends it. Fills in `status`, `reason`, `outputs`,
/// `determinism` and `timing` of `result`, which has the case already. Where memory was overwritten that is
/// not the implementation's, the status is invalid, whatever else is wrong.
///
/// Returns the outputs of the first launch. Throws what the device and the implementation throw, and
/// Interrupted on `stop` while timing.
std::vector<HostTensor> judge_run(const CaseOnDevice& on, const Implementation& implementation,
                                  const JudgePolicy& policy, const std::atomic<bool>& stop,
                                  CaseResult& result);

}  // namespace ssmbench
