// cuda-blelloch for linear_scan: the work-efficient scan of blelloch.cuh over tiles of 128 steps.

#include "kernels/common/scan/blelloch.cuh"
#include "kernels/linear_scan/algorithms/tiled_scan.cuh"
#include "kernels/linear_scan/bind.h"

namespace ssmbench {
namespace {

const Registration registration(tiled_linear_scan<Blelloch<kLinearThreads>>(
    "cuda-blelloch", "work-efficient up and down sweep in shared memory over tiles of 128 steps"));

}  // namespace
}  // namespace ssmbench
