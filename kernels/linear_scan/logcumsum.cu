// cuda-logcumsum for linear_scan: the two cumulative sums of logcumsum.cuh over chunks of 64 steps.

#include "kernels/linear_scan/chunked_scan.cuh"
#include "kernels/linear_scan/logcumsum.cuh"

namespace ssmbench {
namespace {

const Registration registration(chunked_linear_scan<LogCumSum<kLinearThreads>>("cuda-logcumsum",
                                                                               kLogCumSumSummary,
                                                                               kLogCumSumFailure));

}  // namespace
}  // namespace ssmbench
