// cuda-hopper: the scan of packed sequences of Mamba-3 in bf16 that rotates B and C itself.

#include <cuda_bf16.h>

#include "kernels/mamba3/hopper/rotated_scan.cuh"

namespace ssmbench::mamba3_hopper {

template PackedRotatedVariant packed_rotated_scan_for<__nv_bfloat16>(int states, bool gated);

}  // namespace ssmbench::mamba3_hopper
