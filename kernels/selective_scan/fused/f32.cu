// cuda-fused, the kernels of one io dtype: a file each, so that they compile side by side.

#include "kernels/selective_scan/fused/kernel.cuh"
#include "kernels/selective_scan/fused_general/kernel.cuh"

namespace ssmbench {

template fused_general::GeneralKernels fused_general::general_kernels_for<float>(MethodId method,
                                                                                 bool complex);
template fused::Kernel fused::kernel_for<float>(MethodId method, fused::ThreadShape shape, bool along_time,
                                                fused::Pass pass);

}  // namespace ssmbench
