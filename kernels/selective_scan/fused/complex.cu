// cuda-fused, the fast kernel with complex states: a file of its own, as those of the io types are.

#include "kernels/selective_scan/fused/kernel.cuh"

namespace ssmbench::fused {

template Kernel complex_kernel_for<float>(MethodId method, bool along_time);
template Kernel complex_kernel_for<Bits16>(MethodId method, bool along_time);

}  // namespace ssmbench::fused
