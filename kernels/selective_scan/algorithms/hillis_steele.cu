// cuda-hillis-steele for selective_scan_fwd: the step-doubling scan of linear_scan/hillis_steele.cuh over
// chunks of 128 steps, state by state (chunked_scan.cuh).

#include "kernels/common/scan/hillis_steele.cuh"
#include "kernels/selective_scan/algorithms/tiled_scan.cuh"

namespace ssmbench {
namespace {

const Registration registration(chunked_selective_scan<HillisSteele<128>>(
    "cuda-hillis-steele", "step-doubling scan in shared memory over chunks of 128 steps"));

}  // namespace
}  // namespace ssmbench
