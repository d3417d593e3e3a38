// cuda-hopper: the SISO scan of Mamba-3 in f16 that has two heads a block.

#include <cuda_fp16.h>

#include "kernels/mamba3/hopper/pairs/kernel.cuh"

namespace ssmbench::mamba3_pairs {

template mamba3_hopper::RotatedVariant pairs_scan_for<__half>(int states, bool gated);

}  // namespace ssmbench::mamba3_pairs
