#pragma once

#include <functional>

#include "kernels/selective_scan/args.h"
#include "model/dtype.h"
#include "ops/selective_scan/selective_scan.h"

// The scans of the CPU without the checks of a problem's tensors: for arguments that are part of one, such as
// some of its time steps.

namespace ssmbench {

/// A scan whose arguments differ from call to call in pointers and in seqlen. No outputs are written where
/// `out` is null. Calls must not overlap.
using ScanCall = std::function<void(const ScanArgs&)>;

/// cpu-scalar's, of diagonal A.
ScanCall scalar_scan(const SelectiveScan& shape, DType io);
/// cpu-simd's, of method zoh and real A; `sizes` are those of all calls.
ScanCall simd_scan(const ScanArgs& sizes, DType io);

}  // namespace ssmbench
