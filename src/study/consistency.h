#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "model/arithmetic.h"
#include "model/case.h"
#include "model/parts.h"
#include "record/study_result.h"
#include "reference/reference.h"
#include "sweep/plan.h"

namespace ssmbench {

/// Whether implementations that compute the same thing in different ways agree: a problem at once, and in
/// parts (model/parts.h).
struct ConsistencyStudy {
  std::vector<const PartwiseComputation*> checks;  ///< all of the cases' operation
  std::vector<Case> cases;                         ///< what is computed at once
};

/// Runs a study: every implementation of the cases' operation that `selection` names, on the devices, against
/// every implementation of the operation that the parts are computed with, on the same device; where that is
/// the same operation, against itself. `done` is called for each result. Failures of implementations are
/// results; throws Interrupted once `stop` is true.
void measure_consistency(const ConsistencyStudy& study, const std::vector<DeviceInfo>& devices,
                         const Selection& selection, const std::atomic<bool>& stop,
                         const std::function<void(const ConsistencyResult&)>& done);

}  // namespace ssmbench
