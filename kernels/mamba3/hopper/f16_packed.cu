// cuda-hopper: the scans of packed sequences of Mamba-3 in f16.

#include <cuda_fp16.h>

#include "kernels/mamba3/hopper/rotated_scan.cuh"
#include "kernels/mamba3/hopper/scan.cuh"

namespace ssmbench::mamba3_hopper {

template ssd_hopper::PackedVariant packed_scan_for<__half>(int states, bool gated);
template ssd_hopper::PackedVariant packed_ranked_scan_for<__half>(int states);
template PackedRotatedVariant packed_rotated_scan_for<__half>(int states, bool gated);

}  // namespace ssmbench::mamba3_hopper
