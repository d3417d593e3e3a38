#pragma once

#include <functional>

#include "kernels/ssd_chunk_scan/args.h"
#include "model/dtype.h"

// The scans of the CPU without the checks of a problem's tensors: for arguments that are part of one, such as
// some of its time steps. The sequences are those of the batch; no outputs are written where `out` is null.

namespace ssmbench {

/// Calls must not overlap. Batch and seqlen may differ from call to call, and all pointers.
using SsdCall = std::function<void(const SsdArgs&)>;

/// cpu-simd's, with threads for so many heads of all sequences.
SsdCall simd_ssd_scan(DType io, std::int64_t heads);

}  // namespace ssmbench
