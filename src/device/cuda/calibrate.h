#pragma once

#include "device/ceilings.h"

namespace ssmbench {

/// Ceilings of a GPU (calibrate.cu). Tensor rates stay unknown where the fastest instruction of that GPU is
/// not in this build: wgmma of Hopper (sm_90a), tcgen05 of Blackwell.
Ceilings calibrate_cuda(int index);

}  // namespace ssmbench
