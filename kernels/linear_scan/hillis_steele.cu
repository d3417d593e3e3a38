// cuda-hillis-steele for linear_scan: the step-doubling scan of hillis_steele.cuh over chunks of 64 steps.

#include "kernels/linear_scan/chunked_scan.cuh"
#include "kernels/linear_scan/hillis_steele.cuh"

namespace ssmbench {
namespace {

const Registration registration(chunked_linear_scan<HillisSteele<kLinearThreads>>(
    "cuda-hillis-steele", "step-doubling scan in shared memory over chunks of 64 steps"));

}  // namespace
}  // namespace ssmbench
