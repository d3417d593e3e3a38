// cuda-fused, the fast kernels of tensors in 16 bits.

#include "kernels/selective_scan/fused/kernel.cuh"

namespace ssmbench::fused {

template Kernel kernel_for<__half>(MethodId method, ThreadShape shape, bool along_time, Pass pass);
template Kernel kernel_for<__nv_bfloat16>(MethodId method, ThreadShape shape, bool along_time, Pass pass);
template Kernel kernel_for<Bits16>(MethodId method, ThreadShape shape, bool along_time, Pass pass);
template Kernel complex_kernel_for<Bits16>(MethodId method);

}  // namespace ssmbench::fused
