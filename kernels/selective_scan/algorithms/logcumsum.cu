// cuda-logcumsum for selective_scan_fwd: the two cumulative sums of linear_scan/logcumsum.cuh over chunks of
// 64 steps, state by state (chunked_scan.cuh).

#include "kernels/common/scan/logcumsum.cuh"
#include "kernels/selective_scan/algorithms/tiled_scan.cuh"

namespace ssmbench {
namespace {

const Registration registration(chunked_selective_scan<LogCumSum<64>>("cuda-logcumsum", kLogCumSumSummary,
                                                                      kLogCumSumFailure));

}  // namespace
}  // namespace ssmbench
