// The general kernels of selective_scan_bwd for real states: a file each, so that they compile side by side.

#include "kernels/selective_scan/fused_bwd_general/kernel.cuh"

namespace ssmbench::fused_bwd_general {

template GeneralBackwardKernels general_backward_kernels<float>(MethodId method,
                                                                const GeneralBackwardPlan& plan);

}  // namespace ssmbench::fused_bwd_general
