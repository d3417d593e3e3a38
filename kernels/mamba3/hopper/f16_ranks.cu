// cuda-hopper: the scan of Mamba-3's rows (step, rank) in f16. The picture of the kernel is in
// ssd_chunk_scan's kernel.cuh.

#include <cuda_fp16.h>

#include "kernels/mamba3/hopper/scan.cuh"

namespace ssmbench::mamba3_hopper {

template ssd_hopper::Variant ranked_scan_for<__half>(int states);

}  // namespace ssmbench::mamba3_hopper
