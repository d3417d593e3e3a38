// cuda-hopper: the scan of packed sequences of Mamba-3 in f16 that rotates B and C itself.

#include <cuda_fp16.h>

#include "kernels/mamba3/hopper/rotated_scan.cuh"

namespace ssmbench::mamba3_hopper {

template PackedRotatedVariant packed_rotated_scan_for<__half>(int states, bool gated);

}  // namespace ssmbench::mamba3_hopper
