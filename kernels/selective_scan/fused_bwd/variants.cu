// The fast kernels of selective_scan_bwd.

#include "kernels/selective_scan/fused_bwd/kernel.cuh"

namespace ssmbench::fused_bwd {

template BackwardKernels backward_kernels<float>(bool vectorized, bool idle_warps, bool small_blocks,
                                                 bool rounds);
template BackwardKernels backward_kernels<__half>(bool vectorized, bool idle_warps, bool small_blocks,
                                                  bool rounds);
template BackwardKernels backward_kernels<__nv_bfloat16>(bool vectorized, bool idle_warps, bool small_blocks,
                                                         bool rounds);

}  // namespace ssmbench::fused_bwd
