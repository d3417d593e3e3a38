// cuda-logcumsum for selective_scan_fwd: the two cumulative sums of common/scan/logcumsum.cuh over tiles of
// 64 steps, state by state (tiled_scan.cuh).

#include "kernels/common/scan/logcumsum.cuh"
#include "kernels/selective_scan/algorithms/tiled_scan.cuh"
#include "kernels/selective_scan/bind.h"

namespace ssmbench {
namespace {

const Registration registration(tiled_selective_scan<LogCumSum<64>>("cuda-logcumsum", kLogCumSumSummary,
                                                                    kLogCumSumFailure));

}  // namespace
}  // namespace ssmbench
