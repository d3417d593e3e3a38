// cuda-fused, the fast kernels of one io dtype: a file each, so that they compile side by side.

#include "kernels/selective_scan/fused/kernel.cuh"

namespace ssmbench::fused {

template Kernel kernel_for<__nv_bfloat16>(MethodId method, ThreadShape shape, bool along_time, Pass pass);

}  // namespace ssmbench::fused
