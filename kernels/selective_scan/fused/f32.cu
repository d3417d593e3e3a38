// cuda-fused, the fast kernels of tensors in f32.

#include "kernels/selective_scan/fused/kernel.cuh"

namespace ssmbench::fused {

template Kernel kernel_for<float>(MethodId method, ThreadShape shape, bool along_time, Pass pass);
template Kernel complex_kernel_for<float>(MethodId method);

}  // namespace ssmbench::fused
