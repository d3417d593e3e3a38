// cuda-blelloch for selective_scan_fwd: the work-efficient scan of common/scan/blelloch.cuh over tiles of
// 256 steps, state by state (tiled_scan.cuh).

#include "kernels/common/scan/blelloch.cuh"
#include "kernels/selective_scan/algorithms/tiled_scan.cuh"
#include "kernels/selective_scan/bind.h"

namespace ssmbench {
namespace {

const Registration registration(tiled_selective_scan<Blelloch<128>>(
    "cuda-blelloch", "work-efficient up and down sweep in shared memory over tiles of 256 steps"));

}  // namespace
}  // namespace ssmbench
