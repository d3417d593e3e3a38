// cuda-fused for selective_scan_bwd, the common case's kernels of one io dtype: a file each, so that they
// compile side by side.

#include "kernels/selective_scan/fused_bwd/kernel.cuh"

namespace ssmbench {

template ParallelKernels parallel_kernels<__half>(bool pieces);

}  // namespace ssmbench
