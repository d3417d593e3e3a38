#pragma once

#include <functional>

#include "kernels/ssd_chunk_scan/args.h"
#include "model/problem.h"

// The scans of the CPU without the checks of a problem's tensors: for arguments that are part of one, such as
// some of its time steps.

namespace ssmbench {

/// A scan of one sequence, in a batch of 1: arguments differ from call to call in pointers and in seqlen. No
/// outputs are written where `out` is null. Calls must not overlap.
using SsdCall = std::function<void(const SsdArgs&)>;

/// cpu-simd's, with the sizes of a problem, or of its gradients'. Cut at multiples of 32 steps, a sequence
/// gives the bits that it gives whole.
SsdCall simd_ssd_scan(const Problem& problem);

}  // namespace ssmbench
