// The general kernels of selective_scan_bwd for complex states.

#include "kernels/selective_scan/fused_bwd_general/kernel.cuh"

namespace ssmbench::fused_bwd_general {

template GeneralBackwardKernels general_backward_kernels<Complex>(MethodId method,
                                                                  const GeneralBackwardPlan& plan);

}  // namespace ssmbench::fused_bwd_general
