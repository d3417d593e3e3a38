// cuda-hillis-steele for selective_scan_fwd: the step-doubling scan of common/scan/hillis_steele.cuh over
// tiles of 128 steps, state by state (tiled_scan.cuh).

#include "kernels/common/scan/hillis_steele.cuh"
#include "kernels/selective_scan/algorithms/tiled_scan.cuh"
#include "kernels/selective_scan/bind.h"

namespace ssmbench {
namespace {

const Registration registration(tiled_selective_scan<HillisSteele<128>>(
    "cuda-hillis-steele", "step-doubling scan in shared memory over tiles of 128 steps"));

}  // namespace
}  // namespace ssmbench
