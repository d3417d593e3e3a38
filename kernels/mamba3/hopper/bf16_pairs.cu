// cuda-hopper: the SISO scan of Mamba-3 in bf16 that has two heads a block.

#include <cuda_bf16.h>

#include "kernels/mamba3/hopper/pairs/kernel.cuh"

namespace ssmbench::mamba3_pairs {

template mamba3_hopper::RotatedVariant pairs_scan_for<__nv_bfloat16>(int states, bool gated);

}  // namespace ssmbench::mamba3_pairs
