#include "sweep/profile_run.h"

#include "device/profiler.h"

namespace ssmbench {

void profile_run(Device& device, const DeviceInputs& inputs, const Implementation& implementation, int warmup,
                 CaseResult& result) {
  const PreparedRun run(device, implementation, result.the_case.problem, inputs.views());
  for (int i = 0; i < warmup; ++i) run.launch()(device.stream());
  profile_launch(device, run.launch(), result.the_case.id());
  result.status = Status::unverified;
}

}  // namespace ssmbench
