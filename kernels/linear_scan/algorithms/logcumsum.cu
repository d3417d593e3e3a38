// cuda-logcumsum for linear_scan: the two cumulative sums of logcumsum.cuh over tiles of 64 steps.

#include "kernels/common/scan/logcumsum.cuh"
#include "kernels/linear_scan/algorithms/tiled_scan.cuh"
#include "kernels/linear_scan/bind.h"

namespace ssmbench {
namespace {

const Registration registration(tiled_linear_scan<LogCumSum<kLinearThreads>>("cuda-logcumsum",
                                                                             kLogCumSumSummary,
                                                                             kLogCumSumFailure));

}  // namespace
}  // namespace ssmbench
