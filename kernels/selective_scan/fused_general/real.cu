// The general kernels of cuda-fused for real states.

#include "kernels/selective_scan/fused_general/kernel.cuh"

namespace ssmbench::fused_general {

template GeneralKernels general_kernels_for<float>(MethodId method);

}  // namespace ssmbench::fused_general
