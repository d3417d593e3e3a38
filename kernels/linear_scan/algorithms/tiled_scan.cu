// The algorithms of tiled_scan.cuh for linear_scan.

#include "kernels/linear_scan/algorithms/tiled_scan.cuh"

#include "kernels/common/scan/blelloch.cuh"
#include "kernels/common/scan/hillis_steele.cuh"
#include "kernels/common/scan/logcumsum.cuh"
#include "kernels/linear_scan/bind.h"

namespace ssmbench {
namespace {

const Registration blelloch(tiled_linear_scan<Blelloch<kLinearThreads>>(
    "cuda-blelloch", "work-efficient up and down sweep in shared memory over tiles of 128 steps"));

const Registration hillis_steele(tiled_linear_scan<HillisSteele<kLinearThreads>>(
    "cuda-hillis-steele", "step-doubling scan in shared memory over tiles of 64 steps"));

const Registration logcumsum(tiled_linear_scan<LogCumSum<kLinearThreads>>("cuda-logcumsum", kLogCumSumSummary,
                                                                          kLogCumSumFailure));

}  // namespace
}  // namespace ssmbench
