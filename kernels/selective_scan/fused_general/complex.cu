// The general kernels of cuda-fused for complex states: a file each, so that they compile side by side.

#include "kernels/selective_scan/fused_general/kernel.cuh"

namespace ssmbench::fused_general {

template GeneralKernels general_kernels_for<Complex>(MethodId method);

}  // namespace ssmbench::fused_general
