// The algorithms of tiled_scan.cuh for selective_scan_fwd, state by state.

#include "kernels/selective_scan/algorithms/tiled_scan.cuh"

#include "kernels/common/scan/blelloch.cuh"
#include "kernels/common/scan/hillis_steele.cuh"
#include "kernels/common/scan/logcumsum.cuh"
#include "kernels/selective_scan/bind.h"

namespace ssmbench {
namespace {

const Registration blelloch(tiled_selective_scan<Blelloch<128>>(
    "cuda-blelloch", "work-efficient up and down sweep in shared memory over tiles of 256 steps"));

const Registration hillis_steele(tiled_selective_scan<HillisSteele<128>>(
    "cuda-hillis-steele", "step-doubling scan in shared memory over tiles of 128 steps"));

const Registration logcumsum(tiled_selective_scan<LogCumSum<64>>("cuda-logcumsum", kLogCumSumSummary,
                                                                 kLogCumSumFailure));

}  // namespace
}  // namespace ssmbench
