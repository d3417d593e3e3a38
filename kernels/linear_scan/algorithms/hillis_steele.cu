// cuda-hillis-steele for linear_scan: the step-doubling scan of hillis_steele.cuh over tiles of 64 steps.

#include "kernels/common/scan/hillis_steele.cuh"
#include "kernels/linear_scan/algorithms/tiled_scan.cuh"
#include "kernels/linear_scan/bind.h"

namespace ssmbench {
namespace {

const Registration registration(tiled_linear_scan<HillisSteele<kLinearThreads>>(
    "cuda-hillis-steele", "step-doubling scan in shared memory over tiles of 64 steps"));

}  // namespace
}  // namespace ssmbench
