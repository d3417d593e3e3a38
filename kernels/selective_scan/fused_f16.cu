// cuda-fused, the kernels of one io dtype: a file each, so that they compile side by side.

#include "kernels/selective_scan/fused_kernel.cuh"

namespace ssmbench {

template FusedKernel fused_kernel_for<__half>(MethodId method, bool complex);

}  // namespace ssmbench
