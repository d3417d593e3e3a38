#pragma once

#include "kernels/selective_scan/cpu/scans.h"

namespace ssmbench {

/// cpu-scalar's, of dense A.
ScanCall scalar_dense_scan(MethodId method, DType io);

}  // namespace ssmbench
