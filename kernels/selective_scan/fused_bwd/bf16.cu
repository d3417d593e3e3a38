// The fast kernels of selective_scan_bwd for one io dtype: a file each, so that they compile side by side.

#include "kernels/selective_scan/fused_bwd/kernel.cuh"

namespace ssmbench::fused_bwd {

template BackwardKernels backward_kernels<__nv_bfloat16>(bool vectorized, bool idle_warps, bool rounds);

}  // namespace ssmbench::fused_bwd
