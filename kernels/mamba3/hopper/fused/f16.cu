// cuda-hopper: the fused MIMO scan in f16. The picture is in kernel.cuh.

#include <cuda_fp16.h>

#include "kernels/mamba3/hopper/fused/kernel.cuh"

namespace ssmbench::mamba3_fused {

template Variant variant_for<__half>(std::int64_t angles, bool gated);

}  // namespace ssmbench::mamba3_fused
