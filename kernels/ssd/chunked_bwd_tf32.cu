// cuda-chunked backward, f32 tensors, products in tf32: instantiations of chunked_bwd_launch.cuh.

#include "kernels/ssd/chunked_bwd_launch.cuh"

namespace ssmbench {

template void launch_chunked_bwd<float>(const SsdBwdArgs&, const ChunkedBwdPlan&, const ChunkedBwdWorkspace&,
                                        cudaStream_t);

}  // namespace ssmbench
